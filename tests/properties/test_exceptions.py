"""An exception in the middle of a trace: model, module and process work as before."""

import jax
import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

import anyjax
from anyjax.torch.core import private
from tests.properties import state, subjects

pytestmark = pytest.mark.sample(every=8)


class Calls:
    """A hook of all modules that counts their calls, and raises at one of them."""

    def __init__(self, error=None, last=-1):
        self.count, self.error, self.last = 0, error, last

    def __call__(self, module, args):
        self.count += 1
        if self.count == self.last:
            raise self.error

    def __enter__(self):
        self.handle = register_module_forward_pre_hook(self)
        return self

    def __exit__(self, *_):
        self.handle.remove()


def left_over(model):
    """Returns the modules whose calls are still replaced."""
    return [x for x in model.source.code.modules() if private.CALL_INSTEAD in vars(x)]


@pytest.mark.parametrize("subject", subjects.TORCH, indirect=True)
def test_a_trace_that_ends_early(subject):
    module, want = subject.module, subject.torch_out()
    jax.block_until_ready(subject.out)  # the first trace of a process calls modules as probes
    model = anyjax.from_torch(module)
    before = state.of_module(module), state.of_process()
    snapshot = state.of_module(model.source.code)
    trace = lambda: jax.jit(subject.function(model)).lower(model.params, subject.arrays)
    with Calls() as calls:
        trace()
    errors = {1: RuntimeError("first"), calls.count // 2: KeyboardInterrupt(),
              calls.count: ZeroDivisionError("last")}  # fmt: skip
    for last, error in errors.items():
        with Calls(error, last) as calls, pytest.raises(type(error)):
            trace()
        assert calls.count == last and not left_over(model)
        assert state.of_module(model.source.code) == snapshot
        assert (state.of_module(module), state.of_process()) == before
    with Calls(RuntimeError("called"), 2), pytest.raises(RuntimeError, match="called"):
        subject.call(model)
    jax.tree.map(np.testing.assert_array_equal, subject.call(model), subject.out)
    leaves = torch.utils._pytree.tree_leaves
    for x, y in zip(leaves(subject.torch_out()), leaves(want), strict=True):
        assert not isinstance(x, torch.Tensor) or torch.equal(x, y)
