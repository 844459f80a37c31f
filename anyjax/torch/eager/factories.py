"""Where new tensors are: on JAX, as long as this dispatch mode is on."""

from __future__ import annotations

import threading

import torch

from anyjax.torch.core import current_trace, private
from anyjax.torch.core.call import call_of
from anyjax.torch.eager.tensor import KIND, EagerTensor, from_torch

_THREAD = threading.local()
LIFTS = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default}


class Factories(private.TorchDispatchMode):
    """Makes new tensors on JAX; operators on torch's own tensors stay torch's."""

    @staticmethod
    def inside() -> bool:
        """Returns whether one is on in this thread."""
        return getattr(_THREAD, "depth", 0) > 0

    def __enter__(self) -> Factories:
        _THREAD.depth = getattr(_THREAD, "depth", 0) + 1
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        _THREAD.depth -= 1
        super().__exit__(*exception)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that says so imports all of Dynamo

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if current_trace.active():  # from_torch inside: what its trace does itself
            return op(*args, **kwargs)
        if any(issubclass(kind, EagerTensor) for kind in types):
            return (KIND.get() or EagerTensor).dispatched(op, args, kwargs)
        if op in LIFTS and not args[0].is_meta:
            return from_torch(args[0])
        device = kwargs.get("device")
        makes = not types and "device" in kwargs and (device is None or device.type == "cpu")
        if makes and (call_of(op).factory or call_of(op).row is None):
            return EagerTensor.run_op(op, args, kwargs)
        return op(*args, **kwargs)
