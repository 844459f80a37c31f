"""A transformers module on the meta device as the source of a Model; its way back to torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from anyjax.torch.core import interop
from anyjax.torch.core.precision import Option, precision_of
from anyjax.torch.source import TorchSource
from anyjax.torch.state.slots import Slots
from anyjax.torch.state.torchscript import modes


@dataclass(frozen=True, eq=False)
class PretrainedSource(TorchSource):
    """A module whose parameters hold no memory, and its checkpoint's folder."""

    folder: Path = Path()

    def as_array(self, leaf: object) -> Any:
        """Returns an input leaf as JAX takes it; numpy arrays follow the params' devices."""
        array = super().as_array(leaf)
        return np.asarray(array) if isinstance(leaf, torch.Tensor) else array

    def write_back(self, params, state) -> torch.nn.Module:
        """Returns a new module with copies of params and state."""
        return self.filled_module(params, state, interop.to_torch)

    def filled_module(self, params, state, as_torch: Callable) -> torch.nn.Module:
        """Returns a new module with these parameters, in their dtypes, and this state."""
        self.slots.check(params, state)
        module = copy.deepcopy(self.module)
        slots = Slots.of(module)
        for name, array in {**params, **state}.items():
            old, new = slots.tensors[name], as_torch(array)
            if not isinstance(old, torch.nn.Parameter):
                new = new.to(old.dtype)  # integers are 64 bits wide there
            elif old.is_floating_point() != new.is_floating_point():
                new = new.to(old.dtype)
            if isinstance(old, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
            for owner, attribute, place in slots.places:
                if place == name:
                    owner[attribute] = new
        return module


def source_of(
    module: torch.nn.Module, folder: Path, on_missing: str = "error", precision: Option = "torch"
) -> PretrainedSource:
    """Returns the module as a source, in its present mode."""
    return PretrainedSource(
        module, modes(module), on_missing, precision_of(precision), folder=folder
    )


def view_as_torch(array: jax.Array) -> torch.Tensor:
    """Returns a read-only view of an array on a single CPU device; else a copy."""
    devices = [*array.devices()] if isinstance(array, jax.Array) else []
    single = len(devices) == 1 and devices[0].platform == "cpu"
    return torch.from_dlpack(array) if single and array.size else interop.to_torch(array)
