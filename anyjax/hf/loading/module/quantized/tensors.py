"""The tensors of a quantized checkpoint, a matrix's numbers, scales and zeros as one tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from anyjax.errors import AnyjaxError, BadCheckpoint
from anyjax.hf.loading.find.checkpoint import Stored
from anyjax.hf.loading.module.deferred import Deferred, Reader, from_file
from anyjax.hf.loading.module.quantized.grid import Grid
from anyjax.hf.loading.module.quantized.layouts import LAYOUTS, awq, gptq, state_of

# Scales of activations: only weights are quantized here.
ACTIVATIONS = {"input_scale", "input_zero_point", "output_scale", "k_scale", "v_scale"}
ACTIVATIONS |= {"activation_scale", "input_global_scale"}
SHORT = {"I8", "U8", "F8_E4M3", "F8_E5M2", "I32"}


def matrices(
    stored: dict[str, Stored], quantization: dict[str, Any], reader: Reader, module: torch.nn.Module
) -> dict[str, torch.Tensor]:
    """Returns every tensor of the files; a matrix is one tensor, ``NAME.weight``.

    Matrices are float32 until transformers casts them.

    Raises:
      BadCheckpoint: a matrix is incomplete.
    """
    conv1d_names = [n for n, m in module.named_modules() if isinstance(m, Conv1D)]
    unassigned = {k: v for k, v in stored.items() if k.rpartition(".")[2] not in ACTIVATIONS}
    tensors: dict[str, torch.Tensor] = {}
    for key, read, companions in LAYOUTS:
        names = [k.removesuffix(key) for k in unassigned if k.endswith(f".{key}")]
        for prefix in names:
            components = dict(_components(unassigned, prefix, (key, *companions.split())))
            layout: Any = awq if read is gptq and quantization["quant_method"] == "awq" else read
            matrix = _matrix(
                prefix, components, partial(layout, quantization=quantization), reader, quantization
            )
            path = prefix.removesuffix(".")
            is_conv1d = any(
                f".{n}".endswith(f".{path}") or f".{path}".endswith(f".{n}") for n in conv1d_names
            )
            tensors[f"{prefix}weight"] = matrix.t() if is_conv1d else matrix
            unassigned = {k: v for k, v in unassigned.items() if v not in components.values()}
    if unscaled := [k for k, v in unassigned.items() if k.endswith("weight") and v.dtype in SHORT]:
        raise BadCheckpoint(
            f"{len(unscaled)} quantized weights have no scales: {', '.join(unscaled[:3])}",
            why=f"{quantization['quant_method']} has some for each",
            do="finish the download, or compare config.json with the weights",
        )
    return tensors | {k: from_file(v, reader) for k, v in unassigned.items()}


def _components(
    unassigned: dict[str, Stored], prefix: str, names: Iterable[str]
) -> Iterator[tuple[str, Stored]]:
    """Yields (name behind the prefix, tensor) of everything that belongs to a matrix."""
    for name, stored in unassigned.items():
        short = name.removeprefix(prefix) if name.startswith(prefix) else ""
        if short in names or short.startswith("weight."):
            yield short, stored


@contextmanager
def refusing_misfits(
    prefix: str, components: dict[str, Stored], quantization: dict[str, Any]
) -> Iterator[None]:
    """Raises BadCheckpoint where components do not make a matrix."""
    try:
        yield
    except AnyjaxError:
        raise
    except (LookupError, RuntimeError, StopIteration, ValueError) as error:
        is_missing, names = isinstance(error, KeyError | StopIteration), ", ".join(components)
        method = quantization["quant_method"]
        raise BadCheckpoint(
            f"{prefix}weight has only {names}"
            if is_missing
            else f"{names} of {prefix}weight do not fit",
            where=str(next(iter(components.values())).file),
            why=f"{method} stores {'more' if is_missing else 'others'}: {error}",
            do="finish the download, or compare config.json with the weights",
        ) from None


def _matrix(
    prefix: str,
    components: dict[str, Stored],
    layout: Callable[..., Grid],
    reader: Reader,
    quantization: dict[str, Any],
) -> Deferred:
    def grid() -> Grid:
        with refusing_misfits(prefix, components, quantization):
            return layout({k: reader.read(v) for k, v in components.items()}).checked()

    with refusing_misfits(prefix, components, quantization):
        shape = _shape(components, reader, quantization)
    like = torch.empty(shape, dtype=torch.float32, device="meta")
    dense = lambda index=None: grid().dense() if index is None else grid().dense()[index]
    matrix = Deferred(like, dense, sliced=False)
    matrix.grid = grid
    return matrix


def _shape(
    components: dict[str, Stored], reader: Reader, quantization: dict[str, Any]
) -> tuple[int, ...]:
    if "qweight" in components:
        high, wide = components["qweight"].shape
        if quantization["quant_method"] == "awq":
            return wide * 8, high
        return wide, high * 32 // quantization.get("bits", 4)
    if "weight_packed" in components:
        return tuple(reader.read(components["weight_shape"]).tolist())
    if "weight.absmax" in components:
        quant_state = {k: reader.read(v) for k, v in components.items() if "quant_state" in k}
        return tuple(state_of(quant_state)[1]["shape"])
    return components["weight"].shape
