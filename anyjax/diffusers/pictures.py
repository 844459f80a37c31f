"""Pictures, videos and sounds as a pipeline of diffusers returns them, of a program's arrays."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import diffusers
import jax
import numpy as np
import torch
from diffusers.image_processor import VaeImageProcessor

from anyjax import trees
from anyjax.errors import WrongValue
from anyjax.torch.core import interop
from anyjax.typing import PyTree

KINDS = ("pil", "np", "pt", "latent", "jax")


def converted(out: PyTree, kind: str | None, pipeline: diffusers.DiffusionPipeline) -> Any:
    """Returns an output with its pictures, videos or sounds in this form.

    Args:
      out: with arrays: pictures ``[count, channels, height, width]`` and videos
        ``[count, frames, channels, height, width]`` in ``[0, 1]``.
      kind: "pil", "np", "pt", "latent" as diffusers has them, or "jax" for arrays as they are.
      pipeline: that would have computed it.

    Raises:
      WrongValue: there is no such kind.
    """
    if kind not in (*KINDS, None):
        raise WrongValue(
            f"output_type={kind!r}",
            why="a picture comes in one of a few forms",
            do=f"use one of {', '.join(KINDS)}",
        )
    if kind == "jax":
        return out
    is_class = dataclasses.is_dataclass(out)
    values = [getattr(out, f.name) for f in dataclasses.fields(out)] if is_class else [*out]
    tensors: list[Any] = jax.tree.map(_tensor, values)
    tensors = _checked(tensors, pipeline)
    tensors[0] = jax.tree.map(partial(_of_kind, kind), tensors[0])
    return type(out)(*tensors) if is_class else tuple(tensors)


def _tensor(leaf: PyTree) -> Any:
    return interop.to_torch(leaf) if trees.is_array(leaf) else leaf


def _of_kind(kind: str | None, leaf: PyTree) -> Any:
    """Returns a tensor of pictures, videos or sounds as lists of pictures, or for numpy."""
    if not isinstance(leaf, torch.Tensor) or kind not in ("pil", "np"):
        return leaf
    array = leaf.float().numpy()
    if array.ndim < 4:
        return array
    array = np.moveaxis(array, -3, -1)
    if kind == "np":
        return array
    pil = VaeImageProcessor.numpy_to_pil
    return pil(array) if array.ndim == 4 else [pil(video) for video in array]


def _checked(values: list[PyTree], pipeline: object) -> list[Any]:
    """Returns (pictures, what the pipeline's safety checker says), where there is one."""
    if getattr(pipeline, "safety_checker", None) is None or values[0].ndim != 4:
        return values
    pictures, check = values[0], pipeline.run_safety_checker  # type: ignore[attr-defined]
    with torch.no_grad():
        black, unsafe = check(pictures * 2 - 1, "cpu", pictures.dtype)
    shown = [y if bad else x for x, y, bad in zip(pictures, torch.as_tensor(black), unsafe)]
    return [torch.stack(shown), unsafe, *values[2:]]
