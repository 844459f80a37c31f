"""The tensors of a quantized checkpoint under the names and shapes of its matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from tojax.errors import BadCheckpoint, TojaxError
from tojax.hf.loading.checkpoint import Stored
from tojax.hf.loading.deferred import Deferred, Reader, from_file
from tojax.hf.loading.quantized.grid import Grid
from tojax.hf.loading.quantized.layouts import LAYOUTS, awq, gptq, state_of

# Scales of activations, which are not quantized here.
ACTIVATIONS = {"input_scale", "input_zero_point", "output_scale", "k_scale", "v_scale"}
ACTIVATIONS |= {"activation_scale", "input_global_scale"}
SHORT = {"I8", "U8", "F8_E4M3", "F8_E5M2", "I32"}


def matrices(
    stored: dict[str, Stored], told: dict[str, Any], reader: Reader, module: torch.nn.Module
) -> dict[str, torch.Tensor]:
    """Every tensor of the files; numbers, scales and zeros of a matrix as one, ``NAME.weight``,
    float32 until transformers casts it.

    Raises:
      BadCheckpoint: a part of one is missing.
    """
    turned = [n for n, m in module.named_modules() if isinstance(m, Conv1D)]
    left = {k: v for k, v in stored.items() if k.rpartition(".")[2] not in ACTIVATIONS}
    found: dict[str, torch.Tensor] = {}
    for key, read, rest in LAYOUTS:
        names = [k.removesuffix(key) for k in left if k.endswith(f".{key}")]
        for place in names:
            parts = dict(_parts(left, place, (key, *rest.split())))
            layout: Any = awq if read is gptq and told["quant_method"] == "awq" else read
            matrix = _matrix(place, parts, partial(layout, told=told), reader, told)
            path = place.removesuffix(".")
            conv = any(f".{n}".endswith(f".{path}") or f".{path}".endswith(f".{n}") for n in turned)
            found[f"{place}weight"] = matrix.t() if conv else matrix
            left = {k: v for k, v in left.items() if v not in parts.values()}
    if bare := [k for k, v in left.items() if k.endswith("weight") and v.dtype in SHORT]:
        raise BadCheckpoint(
            f"{len(bare)} quantized weights have no scales: {', '.join(bare[:3])}",
            why=f"{told['quant_method']} has some for each",
            do="finish the download, or compare config.json with the weights",
        )
    return found | {k: from_file(v, reader) for k, v in left.items()}


def _parts(left: dict[str, Stored], place: str, names: Iterable[str]):
    for name, stored in left.items():
        short = name.removeprefix(place) if name.startswith(place) else ""
        if short in names or short.startswith("weight."):
            yield short, stored


@contextmanager
def fitting(place: str, parts: dict[str, Stored], told: dict[str, Any]) -> Iterator[None]:
    """What goes wrong while parts become a matrix as BadCheckpoint."""
    try:
        yield
    except TojaxError:
        raise
    except (LookupError, RuntimeError, StopIteration, ValueError) as error:
        few, held = isinstance(error, KeyError | StopIteration), ", ".join(parts)
        raise BadCheckpoint(
            f"{place}weight has only {held}" if few else f"{held} of {place}weight do not fit",
            where=str(next(iter(parts.values())).file),
            why=f"{told['quant_method']} stores {'more' if few else 'others'}: {error}",
            do="finish the download, or compare config.json with the weights",
        ) from None


def _matrix(place: str, parts: dict[str, Stored], layout, reader: Reader, told) -> Deferred:
    def grid() -> Grid:
        with fitting(place, parts, told):
            return layout({k: reader.read(v) for k, v in parts.items()}).checked()

    with fitting(place, parts, told):
        shape = _shape(parts, reader, told)
    like = torch.empty(shape, dtype=torch.float32, device="meta")
    dense = lambda index=None: grid().dense() if index is None else grid().dense()[index]
    matrix = Deferred(like, dense, sliced=False)
    matrix.grid = grid
    return matrix


def _shape(parts: dict[str, Stored], reader: Reader, told: dict[str, Any]) -> tuple[int, ...]:
    if "qweight" in parts:
        high, wide = parts["qweight"].shape
        if told["quant_method"] == "awq":
            return wide * 8, high
        return wide, high * 32 // told.get("bits", 4)
    if "weight_packed" in parts:
        return tuple(reader.read(parts["weight_shape"]).tolist())
    if "weight.absmax" in parts:
        told_here = {k: reader.read(v) for k, v in parts.items() if "quant_state" in k}
        return tuple(state_of(told_here)[1]["shape"])
    return parts["weight"].shape
