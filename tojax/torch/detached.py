"""Writes through views that are made inside ``no_grad``: autograd sees none of them.

Functionalization would hand the value, without its gradient, to the tensor that is viewed. So such
a write goes to that tensor itself, inside ``no_grad``, which says just this.
"""

from __future__ import annotations

from typing import Any

import torch

DETACH = {torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__}
# In place, and no write to memory.
OWN = {"squeeze_", "unsqueeze_", "t_", "swapaxes_", "swapdims_", "transpose_", "as_strided_"}
OWN |= {"detach_", "requires_grad_", "set_", "resize_", "resize_as_"}


def functional(value) -> bool:
    """Whether this is a tensor of the trace that may have views."""
    return isinstance(value, torch.Tensor) and torch._is_functional_tensor(value)


class Detached:
    """The views of a trace that autograd does not follow, each with the call that made it."""

    def __init__(self):
        self.made: dict[int, tuple[Any, ...]] = {}

    def __contains__(self, tensor: Any) -> bool:
        return bool(self.made) and id(tensor) in self.made

    def renew(self, values) -> None:
        """Makes views whose tensor was written to anew, with their gradients, before ``no_grad``
        reads them: later they would be there already, without.
        """
        for x in values:
            if isinstance(x, (tuple, list)):
                self.renew(x)
            elif functional(x) and x not in self:
                with torch.enable_grad(), torch._C.DisableTorchFunction():
                    torch._sync(x)

    def note(self, func, args, kwargs, out) -> None:
        """Keeps what ``func`` made, if that is a view that autograd does not follow."""
        cut = not torch.is_grad_enabled()
        if not args or not functional(args[0]) or not (cut or args[0] in self):
            return
        memory = args[0].untyped_storage()._cdata
        for i, x in enumerate(out if isinstance(out, (tuple, list)) else [out]):
            if x is not args[0] and functional(x) and x.untyped_storage()._cdata == memory:
                with torch.no_grad(), torch._C.DisableTorchFunction():
                    torch._sync(x)  # later it would be made anew, with a gradient
                place = i if isinstance(out, (tuple, list)) else None
                self.made.setdefault(id(x), (x, func, args, kwargs, place))

    def original(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of the tensor that was detached."""
        _, func, args, kwargs, place = self.made[id(tensor)]
        base = self.original(args[0]) if args[0] in self else args[0]
        with torch.enable_grad():
            out = func(base, *args[1:], **kwargs)
        return out if place is None else out[place]

    def writable(self, func, tensor: Any) -> bool:
        """Whether ``func``, a write, changes the memory of a detached view and not its axes."""
        return tensor in self and func.__name__ not in OWN
