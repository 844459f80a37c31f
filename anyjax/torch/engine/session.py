"""Everything that is switched on around one trace of torch code, and off again after it.

torch's C++ functionalization turns views and in-place writes into functional operators; a function
mode (function_mode.py) sees calls of ``torch.*`` above it, a dispatch mode (trace.py) the operators
below it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import torch

from anyjax.errors import MissingOps
from anyjax.torch.autograd.tape import Tape
from anyjax.torch.compat import (
    eager_defaults,
    fake_quantize,
    hf_transformers,
    host_rng,
    jax_functions,
    torch_distributions,
    torch_functions,
)
from anyjax.torch.compat.patches import checked, patched, uncompiled
from anyjax.torch.core import autocast, current_trace, dispatcher, private
from anyjax.torch.core.lifting import CONSTANTS
from anyjax.torch.core.precision import UNASKED, Precision
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.engine.function_mode import FunctionMode
from anyjax.torch.engine.generators import IN_TRACES
from anyjax.torch.engine.trace import Trace

# their patches, by importing
REGISTERED = (
    eager_defaults,
    fake_quantize,
    hf_transformers,
    torch_distributions,
    torch_functions,
)
LOCK = threading.RLock()  # torch's switches and a snapshot's attributes are process-wide


@contextlib.contextmanager
def tracing(
    rng: jax.Array | None,
    inputs: tuple[str, ...],
    callback: bool = False,
    tape: bool = False,
    precision: Precision = UNASKED,
) -> Iterator[Trace]:
    """Yields a trace of the torch code in here; one thread at a time.

    Args:
      rng: the key that random operators draw from, None if there is none.
      inputs: names of the inputs, for errors.
      callback: whether operators that nothing serves run in torch.
      tape: whether a tape is kept, for code that asks for gradients.
      precision: of products and convolutions.

    Raises:
      MissingOps: on leaving, with all operators that nothing serves.
    """
    autocast.refuse_around()
    is_inside = current_trace.active()
    trace = Trace(rng, inputs, callback)
    trace.tape = Tape() if tape else None
    trace.precision, trace.asks = precision, precision.asks
    with LOCK, dispatcher.plain(), contextlib.ExitStack() as stack:
        stack.enter_context(jax.numpy_rank_promotion("allow"))  # as torch code is written
        stack.enter_context(precision.around())
        if "torchvision" in sys.modules:
            from anyjax.torch.compat import torchvision_detectors  # noqa: F401  its patches
        checked()
        around = current_trace.entered(trace), uncompiled(), host_rng.noticed(), patched()
        for switch in (*around, jax_functions.accepted()):
            stack.enter_context(switch)
        stack.callback(CONSTANTS.clear)
        stack.callback(trace.over)
        JaxTensor.runs += 1
        for switch in switches():
            stack.enter_context(switch)
        if is_inside:  # to disable it forgets that the trace around has its views applied again
            stack.callback(private.enable_functionalization, reapply_views=True)
        private.enable_functionalization(reapply_views=True)
        stack.callback(private.disable_functionalization)
        stack.enter_context(torch.enable_grad())  # so that a no_grad region inside forward shows
        stack.enter_context(private.BelowAutograd())
        stack.enter_context(mode := FunctionMode(trace))
        trace.mode = mode
        stack.enter_context(trace)
        default = torch.default_generator
        torch.default_generator = torch.random.default_generator = IN_TRACES
        try:
            yield trace
        except Exception as error:
            if trace.missing and not isinstance(error, MissingOps):
                raise trace.missing.error() from error
            raise
        finally:
            torch.default_generator = torch.random.default_generator = default
    if trace.missing:
        raise trace.missing.error()
    if "generators" in vars(trace):
        trace.generators.outlive()


def switches() -> Iterator[contextlib.AbstractContextManager]:
    """torch's own: code is told that it is compiled, and what only chooses kernels is off."""
    flag, mha = private.COMPILING, torch.backends.mha
    compiler = flag.place
    at = compiler, flag.name
    yield switched(partial(getattr, *at), partial(setattr, *at), current_trace.Active())
    yield switched(private.get_mkldnn, private.set_mkldnn, False)
    yield switched(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False)
    yield torch.jit.optimized_execution(False)  # of TorchScript: no fused kernels


@contextlib.contextmanager
def switched(get: Callable[[], object], put: Callable[[Any], Any], value: object) -> Iterator[None]:
    """Sets a switch to ``value`` for a while."""
    was = get()
    put(value)
    try:
        yield
    finally:
        put(was)
