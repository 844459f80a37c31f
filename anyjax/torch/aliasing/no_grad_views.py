"""Writes through views that are made inside ``no_grad``: autograd sees none of them.

Functionalization would hand the value, without its gradient, to the tensor that is viewed. So such
a write goes to that tensor itself, inside ``no_grad``, which says just this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from anyjax.torch.core import private

DETACH = {torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__}
# In place, and no write to memory.
SHAPES = {"squeeze_", "unsqueeze_", "t_", "swapaxes_", "swapdims_", "transpose_", "as_strided_"}
SHAPES |= {"resize_", "resize_as_"}
OWN = SHAPES | {"detach_", "requires_grad_", "set_"}


def functional(value) -> bool:
    """Returns whether this is a tensor of the trace that may have views."""
    return isinstance(value, torch.Tensor) and private.is_functional(value)


def of_one_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether one is a view of the other, or both of a third."""
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


@dataclass
class View:
    """A view that autograd does not follow: the call that made it, whose first argument is not
    given another shape; and what gave this one another shape since.
    """

    tensor: torch.Tensor
    made: partial
    place: int | None
    shaped: list[Callable] = field(default_factory=list)


class Detached:
    """The views of a trace that autograd does not follow."""

    def __init__(self):
        self.views: dict[int, View] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return bool(self.views) and id(tensor) in self.views

    def renew(self, values) -> None:
        """Makes views whose tensor was written to anew, with their gradients, before ``no_grad``
        reads them: later they would be there already, without.
        """
        for x in values:
            if isinstance(x, (tuple, list)):
                self.renew(x)
            elif functional(x) and x not in self:
                with torch.enable_grad(), private.DisableTorchFunction():
                    private.sync(x)

    def note(self, func, args, kwargs, out) -> None:
        """Keeps what ``func`` made, if that is a view that autograd does not follow."""
        cut = not torch.is_grad_enabled()
        if not args or not functional(args[0]) or not (cut or args[0] in self):
            return
        if out is args[0]:
            if out in self and func.__name__ in SHAPES:
                shape = lambda x: func(x, *args[1:], **kwargs)
                self.views[id(out)].shaped.append(shape)
            return
        remake = None
        for i, x in enumerate(out if isinstance(out, (tuple, list)) else [out]):
            if x is not args[0] and functional(x) and of_one_memory(x, args[0]):
                with torch.no_grad(), private.DisableTorchFunction():
                    private.sync(x)  # later it would be made anew, with a gradient
                remake = remake or partial(func, self.same_memory(args[0]), *args[1:], **kwargs)
                place = i if isinstance(out, (tuple, list)) else None
                self.views.setdefault(id(x), View(x, remake, place))

    def same_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the same memory in the shape that it has now."""
        with torch.set_grad_enabled(tensor not in self):
            alias = torch.ops.aten.alias(tensor)
        if tensor in self:
            view = self.views[id(tensor)]
            self.views[id(alias)] = replace(view, tensor=alias, shaped=list(view.shaped))
        return alias

    def original(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the same view of the tensor that was detached."""
        view = self.views[id(tensor)]
        base, *rest = view.made.args
        base = self.original(base) if base in self else base
        with torch.enable_grad():
            out = view.made.func(base, *rest, **view.made.keywords)
            out = out if view.place is None else out[view.place]
            for shape in view.shaped:
                shape(out)
        return out

    def writable(self, func, tensor: torch.Tensor) -> bool:
        """Returns whether ``func``, a write, changes the memory of a detached view and not its
        axes.
        """
        return tensor in self and func.__name__ not in OWN
