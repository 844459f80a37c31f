"""A pipeline of diffusers, or the folder of one, in JAX."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import diffusers

from anyjax.diffusers.pipeline import Pipeline
from anyjax.diffusers.sampling import Sampling
from anyjax.errors import Unsupported, WrongArguments
from anyjax.torch import from_torch
from anyjax.torch.core.precision import Option
from anyjax.transforms.rolling.rolled import Rolled


def from_diffusers(
    source: str | os.PathLike[str] | diffusers.DiffusionPipeline,
    *,
    precision: Option = "torch",
    remat: bool = False,
    **options: object,
) -> Pipeline:
    """Returns a pipeline of diffusers as one pure function: prompt in, pictures out.

    The pipeline's own Python code is traced, its scheduler included. Modules that it calls in each
    step are traced once, and equal steps become one ``lax.scan``: neither the trace of the
    denoiser nor the compiled program grow with the number of steps. First and last steps in which
    a scheduler computes something else stand beside the loop. Gradients are gradients: the
    ``torch.no_grad`` around the pipeline's code is left out. Adapters that diffusers has loaded
    are in it, with their weights as params.

    Args:
      source: a pipeline, or a folder or hub id of one. It is taken as it is: later changes are not
        seen.
      precision: as ``anyjax.from_torch`` has it.
      remat: compute the steps again for the gradient, rather than keep what is inside of each.
      **options: for ``DiffusionPipeline.from_pretrained``, such as ``torch_dtype``.

    Returns:
      A Pipeline: call it as diffusers' own, with ``rng=`` in the place of a generator. Its
      ``model`` is a Model, ``apply`` is what ``jit``, ``grad`` and ``vmap`` take.

    Raises:
      WrongArguments: ``source`` is no pipeline.
      Unsupported: it is made of other pipelines.

    Example:
      >>> import jax
      >>> pipe = anyjax.from_diffusers("folder-of-a-pipeline")  # doctest: +SKIP
      >>> pipe("a cat", steps=20, rng=jax.random.key(0)).images[0]  # doctest: +SKIP
    """
    pipeline = _loaded(source, options)
    inside = [
        name for name, x in vars(pipeline).items() if isinstance(x, diffusers.DiffusionPipeline)
    ]
    if inside:
        raise Unsupported(
            f"{type(pipeline).__name__}, a pipeline of pipelines",
            where=", ".join(inside),
            why="each of them is a program of its own",
            do=f"convert them: anyjax.from_diffusers(pipeline.{inside[0]})",
        )
    model = from_torch(Sampling(pipeline), precision=precision)
    return Pipeline(replace(model, source=Rolled(model.source, (), remat, hoist=False)), pipeline)


def _loaded(source: object, options: dict[str, object]) -> Any:
    if isinstance(source, diffusers.DiffusionPipeline):
        if not options:
            return source
        raise WrongArguments(
            f"from_diffusers takes no {', '.join(options)} with a pipeline",
            why="these are for the files of a folder",
            do="load the pipeline with them",
        )
    if isinstance(source, (str, os.PathLike)):
        return diffusers.DiffusionPipeline.from_pretrained(source, **options)
    raise WrongArguments(
        f"from_diffusers takes a pipeline or a folder, not {source!r}",
        why="it converts the call of a diffusers.DiffusionPipeline",
        do="anyjax.from_torch converts modules and functions",
    )
