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


def computed_as(kind: str | None, pipeline: object) -> str | None:
    """Returns the form that the program computes: arrays of numpy are left to the pipeline's own
    code, but of videos, which it puts together in numpy, and where a safety checker comes between.

    Raises:
      WrongValue: there is no such form.

    Example:
      >>> computed_as("jax", None), computed_as("pil", None)
      ('pt', 'np')
    """
    if kind not in (*KINDS, None):
        raise WrongValue(
            f"output_type={kind!r}",
            why="a picture comes in one of a few forms",
            do=f"use one of {', '.join(KINDS)}",
        )
    if kind in ("pil", "np"):
        return "pt" if _channels_first(pipeline) else "np"
    return "pt" if kind == "jax" else kind


def _channels_first(pipeline: object) -> bool:
    return any(
        getattr(pipeline, name, None) is not None for name in ("video_processor", "safety_checker")
    )


def converted(out: PyTree, kind: str | None, pipeline: diffusers.DiffusionPipeline) -> Any:
    """Returns an output with its pictures, videos or sounds in this form.

    Args:
      out: with arrays, as the program gives them for ``computed_as(kind)``.
      kind: "pil", "np", "pt", "latent" as diffusers has them, or "jax" for arrays of "pt".
      pipeline: that would have computed it.
    """
    if kind == "jax":
        return out
    is_class = dataclasses.is_dataclass(out)
    values = [getattr(out, f.name) for f in dataclasses.fields(out)] if is_class else [*out]
    tensors: list[Any] = jax.tree.map(_tensor, values)
    tensors = _checked(tensors, pipeline)
    if kind in ("pil", "np"):
        as_kind = partial(_of_kind, kind, _channels_first(pipeline))
        tensors[0] = jax.tree.map(as_kind, tensors[0])
    return type(out)(*tensors) if is_class else tuple(tensors)


def _tensor(leaf: PyTree) -> Any:
    return interop.to_torch(leaf) if trees.is_array(leaf) else leaf


def _of_kind(kind: str, channels_first: bool, tensor: torch.Tensor) -> Any:
    """Returns pictures, videos or sounds for numpy, or as lists of pictures."""
    array = tensor.float().numpy()
    if channels_first and array.ndim > 3:
        array = np.moveaxis(array, -3, -1)
    if kind == "np" or array.ndim < 4:
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
