"""The torch side as named arrays: of a module, a Model, a state dict or safetensors files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from anyjax.errors import BadCheckpoint, WrongArguments
from anyjax.flax.matching.layer import Tensor
from anyjax.model import Model
from anyjax.trees import is_array

if TYPE_CHECKING:
    import torch


class Stored(NamedTuple):
    """The named arrays, and their module, None if there are only arrays."""

    tensors: dict[str, Tensor]
    module: Any = None


def read_weights(source: object) -> Stored:
    """Reads a module, a Model, a mapping of names, a safetensors file or a folder of them.

    Raises:
      WrongArguments: it is none of these.
      BadCheckpoint: a file cannot be read, or there is none.
    """
    if isinstance(source, (str, os.PathLike)):
        return Stored(from_files(Path(source).expanduser()))
    if isinstance(source, Model):
        tensors = {k: _tensor(k, v) for k, v in {**source.params, **source.state}.items()}
        module = getattr(source.source, "module", None)
        return Stored(tensors, module if _has_weights(module, tensors) else None)
    if isinstance(source, Mapping):
        wrong = [k for k, v in source.items() if not is_array(v)]
        if wrong:
            raise WrongArguments(
                f"{', '.join(map(str, wrong[:5]))} of the state dict is no array",
                why="a state dict maps names to tensors or arrays",
                do="give what module.state_dict() returns; of a training checkpoint its weights",
            )
        return Stored({k: _tensor(k, v) for k, v in source.items()})
    if hasattr(source, "state_dict") and hasattr(source, "named_modules"):
        return Stored(_of_module(source), source)
    raise WrongArguments(
        f"a {type(source).__name__} holds no torch weights",
        why="load_into reads a torch module, an anyjax.Model, a state dict, or safetensors files",
        do="give the module or its state_dict()",
    )


def _of_module(module: torch.nn.Module) -> dict[str, Tensor]:
    """Returns the state dict, in which computed weights replace their parametrizations."""
    tensors = {k: _tensor(k, v) for k, v in module.state_dict().items()}
    for path, inner in module.named_modules():
        for leaf in getattr(inner, "parametrizations", ()):
            name = f"{path}.{leaf}" if path else leaf
            prefix = f"{path}.parametrizations.{leaf}." if path else f"parametrizations.{leaf}."
            tensors = {k: v for k, v in tensors.items() if not k.startswith(prefix)}
            tensors[name] = _tensor(name, getattr(inner, leaf))
    return tensors


def _has_weights(module: Any, tensors: Mapping[str, Tensor]) -> bool:
    """Returns True if a module has these weights: a Model may have been given others."""
    if not hasattr(module, "named_modules"):
        return False
    state = module.state_dict()
    return all(
        name in state
        and not state[name].is_meta
        and np.array_equal(as_numpy(state[name]), tensor.read(), equal_nan=True)
        for name, tensor in tensors.items()
    )


def _tensor(name: str, array: Any) -> Tensor:
    return Tensor(name, (name,), tuple(array.shape), lambda: as_numpy(array))


def as_numpy(array: object) -> np.ndarray:
    """Copies a tensor or array to the host; bfloat16 stays bfloat16."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    tensor = array.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # unknown to numpy
        import torch

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def from_files(path: Path) -> dict[str, Tensor]:
    """Returns the arrays of a safetensors file, or of those in a folder, by name.

    Raises:
      BadCheckpoint: there is none, or one is damaged.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise BadCheckpoint(
            f"{path} holds no safetensors files" if path.exists() else f"there is no {path}",
            where=f"the working folder is {Path.cwd()}",
            why="weights on disk are read from safetensors files alone",
            do="load others with torch.load(...) and give the state dict",
        )
    return {name: tensor for file in files for name, tensor in _from_file(file).items()}


def _from_file(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    def reader(name: str) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            with safe_open(file, framework="numpy") as opened:
                return opened.get_tensor(name)

        return read

    try:
        with safe_open(file, framework="numpy") as opened:
            names = list(opened.keys())
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, OSError) as error:
        raise BadCheckpoint(
            f"{file.name} is no complete safetensors file",
            where=str(file),
            why=str(error).splitlines()[0],
            do="load other formats with torch.load(...) and give the state dict",
        ) from None
    return {name: Tensor(name, (name,), shape, reader(name)) for name, shape in shapes.items()}
