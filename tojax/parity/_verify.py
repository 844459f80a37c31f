"""A model against its original, or against another model, module by module."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from tojax.errors import Unsupported
from tojax.model import Model
from tojax.parity import store
from tojax.parity.golden import GoldenSide
from tojax.parity.jax_side import JaxSide
from tojax.parity.judge import (
    DROPOUT,
    REORDERED,
    Comparison,
    Passes,
    compare,
    faults,
    reordered,
)
from tojax.parity.report import Report
from tojax.parity.sides import INPUTS, OUTPUT, Call, Passed, Side
from tojax.parity.text import Predictions, predictions
from tojax.trees import is_array

PACKAGES = ("tojax", "jax", "jaxlib", "torch", "transformers", "tensorflow", "keras", "numpy")


def verify(
    model: Model,
    *args: Any,
    reference: Any = None,
    gradients: bool = False,
    rng: jax.Array | None = None,
    **kwargs: Any,
) -> Report:
    """Compares a model with its original, or with another one, module by module.

    Both sides run in their own precision and in 64 bits. A module is at fault where JAX is further
    from the other side in 64 bits than that side's own rounding is, or off by much more than that
    in its own precision; so no tolerance decides. Modules are compared for the same inputs: the
    reference's values take the place of what modules return, after these are noted. What a module
    adds is then separate from what it inherits, and a module that contains others answers for its
    own code alone.

    Args:
      model: any Model that was written in modules.
      *args, rng, **kwargs: the call, as for ``model(...)``.
      reference: a torch module, a Keras model or TensorFlow function, another Model with modules
        of the same paths, or a folder that ``report.save_golden`` wrote for the same call; by
        default what the model was made of. TensorFlow models are compared node by node. Torch
        modules in training mode drop the same values on both sides; dropout outside of modules of
        its own is left out on both.
      gradients: compare gradients, too, with respect to params and floating-point inputs, of the
        outputs times fixed random numbers.

    Returns:
      A Report: ``report.ok``, ``report.verdict``, ``report.modules``; print it.

    Raises:
      Unsupported: the model has no modules, or there is no original to compare it with.
      MissingRng: a torch model draws other random numbers than those of dropout.

    Example:
      >>> import numpy as np, torch
      >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8))
      >>> model = tojax.from_torch(module)
      >>> x = np.ones((2, 3), np.float32)
      >>> tojax.verify(model, x).verdict
      'equal up to float32 rounding; 2 modules'
      >>> module[1].eps = 1e-2  # after the conversion
      >>> tojax.verify(model, x).faults[0].path
      '1'
    """
    call = Call(args, kwargs, rng)
    original = side_of(model, reference, call)
    is_torch = original.name == "torch"  # whose random numbers JAX does not draw
    actual = model_side(model, replace(call, rng=None) if is_torch else call, is_torch)
    expected = original.forward()
    actual.one_by_one = sum(x.nbytes for v in expected.values.values() for x in v) > store.LIMIT
    masks = {path: x for path, x in expected.values.items() if _module(path) in original.masked}
    free = actual.forward(forced=masks or None)
    excluded = dict.fromkeys(masks, DROPOUT) | dict.fromkeys(reordered(expected, free), REORDERED)
    forced = {k: x for k, x in expected.values.items() if excluded.get(k) != REORDERED}
    judge, wide = (side.forward(wide=True, forced=forced) for side in (original, actual))
    passes = Passes(expected, free, actual.forward(forced=forced), judge, wide, excluded)
    modules = compare(passes, actual.kinds())
    return Report(
        model=model.source.name,
        reference=original.name,
        dtype=str(passes.actual.values[OUTPUT][0].dtype)
        if passes.actual.values[OUTPUT]
        else "no float",
        modules=modules,
        gradients=_gradients(original, actual, expected) if gradients else [],
        predictions=_predictions(passes, actual),
        places={x.path: place for x in faults(modules) if (place := actual.place(x.path))},
        seconds={"JAX": passes.actual.seconds, original.name: expected.seconds},
        notes=_notes(passes),
        unit=actual.unit,
        passes=passes,
        versions={p: sys.modules[p].__version__ for p in PACKAGES if p in sys.modules},
    )


def _notes(passes: Passes) -> tuple[str, ...]:
    """Names the modules that are not compared."""
    alone = [path for path in passes.alone() if INPUTS not in path]
    kinds = {"not called on both sides": alone}
    for path, why in passes.excluded.items():
        kinds.setdefault(why, []).append(path)
    shown = lambda paths: ", ".join(paths[:6]) + (", ..." if len(paths) > 6 else "")
    return tuple(f"not compared, {why}: {shown(paths)}" for why, paths in kinds.items() if paths)


def _gradients(original: Side, actual: Side, expected: Passed) -> list[Comparison]:
    """Compares gradients, those of the last params first."""
    draw = np.random.default_rng(0).standard_normal
    cotangents = [draw(x.shape, np.float32) for x in expected.values[OUTPUT]]
    of = {
        (side, wide): side.gradients(cotangents, wide)
        for side in (original, actual)
        for wide in (False, True)
    }
    passes = Passes(
        expected=of[original, False],
        actual=of[actual, False],
        added=of[actual, False],
        judge=of[original, True],
        wide=of[actual, True],
    )
    return compare(passes, {})


def _module(path: str) -> str:
    """Returns the path of a module without the number of its call."""
    return path.partition("#")[0]


def model_side(model: Model, call: Call, without_dropout: bool = False) -> JaxSide:
    """Returns a Model as a side, by the framework that it came from."""
    if model.source.framework != "tensorflow":
        return JaxSide(model, call, without_dropout)
    from tojax.parity.tensorflow_side import GraphSide

    return GraphSide(model, call)


def side_of(model: Model, reference: object, call: Call) -> Side:
    """Returns what a model is compared with.

    Raises:
      Unsupported: there is nothing of that kind.
    """
    if isinstance(reference, (str, os.PathLike)):
        return GoldenSide(reference)
    if isinstance(reference, Model):
        return model_side(reference, call)
    if model.source.framework == "tensorflow":
        from tojax.parity.tensorflow_side import side

        return side(model, reference, call)
    if reference is None and model.source.framework == "torch":
        module = model.source.module
        reference = model.to_torch() if any(x.is_meta for x in module.parameters()) else module
    if "torch" in sys.modules:
        import torch

        from tojax.parity.torch_side import TorchSide

        if isinstance(reference, torch.nn.Module):
            return TorchSide(reference, call, _modes(model))
    raise Unsupported(
        f"verify with {type(reference).__name__} as the reference",
        where=model.source.name,
        why="it is neither a torch module, a Model, nor a folder",
        do="pass reference=module, or reference=another_model",
    )


def _modes(model: Model) -> dict[str, bool]:
    """Returns the mode of each submodule of a torch model, by path."""
    if model.source.framework != "torch":
        return {}
    named = model.source.module.named_modules()
    return {path: mode for (path, _), mode in zip(named, model.source.training)}


def _predictions(passes: Passes, side: JaxSide) -> Predictions | None:
    """Compares the predictions of language models: logits for each of the tokens that came in."""
    logits, expected = (side.values[OUTPUT] for side in (passes.actual, passes.expected))
    arrays = [np.asarray(x) for x in jax.tree.leaves((side.args, side.kwargs)) if is_array(x)]
    ids = next((x for x in arrays if x.ndim == 2 and x.dtype.kind in "iu"), None)
    if ids is None or not logits or logits[0].ndim != 3 or logits[0].shape[:2] != ids.shape:
        return None
    if logits[0].shape != expected[0].shape or ids.max() >= logits[0].shape[-1] or ids.min() < 0:
        return None
    return predictions(np.asarray(logits[0], np.float64), np.asarray(expected[0], np.float64), ids)
