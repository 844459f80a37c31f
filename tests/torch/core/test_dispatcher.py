"""The dispatcher as a thread has it that has just begun."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anyjax.torch.core import current_trace, dispatcher, private


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.operators.append(str(op))
        with dispatcher.plain():
            torch.ones(2)
        return op(*args, **kwargs or {})


def keys():
    return [keys() for keys in (private.included_keys, private.excluded_keys)]


def test_nothing_goes_on_inside():
    with Seen() as mode, torch.device("meta"), current_trace.entered(mode):
        with dispatcher.plain():
            assert keys() == dispatcher.PLAIN and current_trace.trace() is None
            assert not torch.ones(2).is_meta
        assert torch.ones(2).is_meta and current_trace.trace() is mode
    assert mode.operators == ["aten.ones.default"]


def test_it_is_so_inside_of_transformations_and_after_errors():
    def doubled(x):
        try:
            with dispatcher.plain():
                assert keys() == dispatcher.PLAIN
                raise KeyError
        except KeyError:
            assert keys() != dispatcher.PLAIN
        return x * 2

    assert torch.func.vmap(doubled)(torch.ones(2)).tolist() == [2, 2]
    with torch.inference_mode(), dispatcher.plain():
        assert keys() == dispatcher.PLAIN
