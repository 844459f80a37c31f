"""A module as it is when it is converted: later changes to its attributes are not seen, whether a
program was compiled before them or not.

    model = anyjax.from_torch(net)
    net.scale = 5.0                # not seen; anyjax.from_torch(net) again sees it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.torch.core import private
from anyjax.torch.objects.copies import shell
from anyjax.torch.objects.functions import Function
from anyjax.torch.state import torchscript


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A copy of a module around the same tensors; ``settings`` are the plain values in it."""

    module: torch.nn.Module
    settings: list[Any]

    @classmethod
    def of(cls, module: torch.nn.Module) -> Snapshot:
        copy, copies = shell(module, settings=True)
        return cls(copy, copies.settings or [])

    def __reduce__(self) -> tuple[object, ...]:
        """Returns the module alone: ``settings`` has types that cannot be pickled."""
        return Snapshot.of, (self.module,)

    def __eq__(self, other: object) -> bool:
        """Returns whether the same code would run."""
        return isinstance(other, Snapshot) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash(len(self.settings))


class Writes(private.TorchDispatchMode):
    """Notices whether tensors are written to."""

    def __init__(self):
        super().__init__()
        self.found = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.found |= op._schema.is_mutable
        return op(*args, **(kwargs or {}))


def overrides(module: torch.nn.Module) -> bool:
    """Returns whether its class overrides ``train()`` or ``eval()``, which may do anything."""
    cls, base = type(module), torch.nn.Module
    if isinstance(module, (Function, torch.jit.ScriptModule)):
        return False
    return cls.train is not base.train or cls.eval is not base.eval


def in_mode(
    module: torch.nn.Module, modes: tuple[bool, ...], training: bool
) -> tuple[tuple[bool, ...], Snapshot | None]:
    """Returns (the modes of all submodules after ``train(training)``, the module if that changed
    it).

    Raises:
      Unsupported: ``train()`` writes to weights, or cannot be run without them.
    """
    if not any(map(overrides, module.modules())):
        return (training,) * len(modes), None
    copy = Snapshot.of(module).module
    old_modes, places = torchscript.modes(module), _without_values(copy)
    try:
        torchscript.set_modes(copy, modes)
        with torch.no_grad(), Writes() as writes:
            for root in copy.children() if isinstance(copy, Function) else (copy,):
                root.train() if training else root.eval()
    except Exception as error:
        raise _refused(module, f"raises {error}") from error
    finally:
        new_modes = torchscript.modes(copy)
        torchscript.set_modes(module, old_modes)  # of TorchScript, which is not copied
        changed = [holder[key] is not meta for holder, key, _, meta in places if key in holder]
        for holder, key, tensor, _ in places:
            holder[key] = tensor
    if writes.found or any(changed):
        raise _refused(module, "changes weights")
    return new_modes, Snapshot.of(copy)


def _without_values(module: torch.nn.Module) -> list[tuple[Any, str, Any, Any]]:
    """Gives parameters and buffers no memory; (what holds it, key, tensor, what stands there)."""
    places = []
    for child in module.modules():
        if isinstance(child, torch.jit.ScriptModule):
            continue
        for holder in (child._parameters, child._buffers):
            for key, tensor in holder.items():
                if tensor is not None:
                    meta: Any = torch.empty_like(tensor, device="meta")
                    if isinstance(tensor, torch.nn.Parameter):
                        meta = torch.nn.Parameter(meta, tensor.requires_grad)
                    places.append((holder, key, tensor, meta))
    for holder, key, _, meta in places:
        holder[key] = meta
    return places


def _refused(module: torch.nn.Module, what: str) -> Unsupported:
    return Unsupported(
        f"train() or eval() of {type(module).__name__} {what}",
        why="a Model in another mode has the same weights",
        do="call it on the torch module, and convert that again",
    )
