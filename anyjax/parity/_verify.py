"""A model against its original, or against another model, module by module."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np

from anyjax.calls.layouts import with_arrays
from anyjax.compare.judge import (
    Comparison,
    compare,
    differing_calls,
    faults,
)
from anyjax.compare.passes import Progress, forward_passes
from anyjax.compare.side import INPUTS, NUMBERS, OUTPUT, Call, ModelSide, Passes, Side
from anyjax.compare.sides.choose import model_side, side_of
from anyjax.errors import Unsupported, WrongArguments
from anyjax.model import Model
from anyjax.parity.predictions import Predictions, predictions
from anyjax.parity.report.report import Report
from anyjax.trees import is_array

if TYPE_CHECKING:
    from flax import linen, nnx

PACKAGES = (
    "anyjax",
    "jax",
    "jaxlib",
    "torch",
    "transformers",
    "tensorflow",
    "keras",
    "flax",
    "numpy",
)


def verify(
    model: Model | nnx.Module | linen.Module,
    *args: Any,
    reference: object = None,
    gradients: bool = False,
    operators: str | None = None,
    progress: Progress | None = None,
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
      model: any Model that was written in modules; or a Flax module, such as one that
        ``anyjax.flax.source`` wrote: of nnx, or of Linen with its variables
        (``module.bind(variables)``). Its submodules are those of the reference by their names.
      *args: the call, as for ``model(...)``.
      rng: the key of that call, where it draws random numbers.
      **kwargs: its arguments by name.
      reference: a torch module, a Keras model or TensorFlow function, another Model with modules
        of the same paths, or a folder that ``report.save_golden`` wrote for the same call; by
        default what the model was made of. TensorFlow models are compared node by node. Torch
        modules in training mode drop the same values on both sides; dropout outside of modules of
        its own is left out on both.
      gradients: compare gradients, too, with respect to params and floating-point inputs, of the
        outputs times fixed random numbers.
      operators: regular expression, searched in the paths of torch modules, whose own calls of
        torch functions are compared, too, each for torch's own inputs of it.
      progress: called before each of the five passes with its name, its number, and their number.

    Returns:
      A Report: ``report.ok``, ``report.verdict``, ``report.modules``; print it.

    Raises:
      Unsupported: the model has no modules, or there is no original to compare it with.
      MissingRng: a torch model draws other random numbers than those of dropout.

    Example:
      >>> import numpy as np, torch
      >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8))
      >>> model = anyjax.from_torch(module)
      >>> x = np.ones((2, 3), np.float32)
      >>> anyjax.verify(model, x).verdict
      'equal up to float32 rounding; 2 modules'
      >>> module[1].eps = 1e-2  # after the conversion
      >>> anyjax.verify(model, x).faults[0].path
      '1'
    """
    call = Call(args, with_arrays(kwargs), rng)
    original = side_of(model, reference, call)
    is_torch = original.name == "torch"  # whose random numbers JAX does not draw
    actual = model_side(model, replace(call, rng=None) if is_torch else call, is_torch)
    passes = forward_passes(original, actual, progress)
    _check_size(original.name, passes)
    unused = _unused(original, passes) if is_torch else []
    modules = compare(passes, actual.kinds() or original.kinds())
    compared, places, notes = _operators(original, operators)
    of_gradients, further = _gradients(original, actual, passes) if gradients else ([], [])
    return Report(
        model=actual.model_name,
        reference=original.name,
        dtype=str(passes.actual.values[OUTPUT][0].dtype)
        if passes.actual.values[OUTPUT]
        else "no float",
        modules=modules,
        gradients=of_gradients,
        operators=compared,
        predictions=_predictions(passes, actual),
        places=places | {x.path: y for x in faults(modules) if (y := actual.code_line(x.path))},
        seconds={"JAX": passes.actual.seconds, original.name: passes.expected.seconds},
        notes=(
            *_advice(original.kinds(), actual.kinds()),
            *_notes(passes, unused),
            *notes,
            *further,
        )
        + ((note,) if (note := getattr(original, "note", "")) else ()),
        reproducer=partial(_reproduce, model, original, actual, modules),
        unit=actual.unit,
        passes=passes,
        versions={p: sys.modules[p].__version__ for p in PACKAGES if p in sys.modules},
    )


def _check_size(name: str, passes: Passes) -> None:
    """Raises WrongArguments where the outputs have no numbers: equal ones would say nothing."""
    arrays = passes.expected.values[OUTPUT] + passes.expected.values.get(NUMBERS, [])
    if arrays and not any(x.size for x in arrays):
        shapes = ", ".join(str([*x.shape]) for x in arrays)
        raise WrongArguments(
            "there are no numbers to compare",
            where=f"the outputs of {name}: {shapes}",
            why="inputs without elements, such as no tokens, make any two models equal",
            do="pass inputs with at least one element in each dimension",
        )


def _unused(original: Side, passes: Passes) -> list[str]:
    """Returns the modules of torch with weights that no pass runs."""
    from anyjax.compare.sides.torch_side import TorchSide, unused

    called = {path.partition(INPUTS)[0].partition("#")[0] for path in passes.expected.values}
    return unused(cast(TorchSide, original).module, called)


def _notes(passes: Passes, unused: list[str]) -> tuple[str, ...]:
    """Names the modules that are not compared."""
    missing = [path for path in passes.alone() if INPUTS not in path]
    differing = differing_calls(passes)
    kinds = {
        "never called": unused,
        "not called on both sides": missing,
        "called with other integers, caches or shapes": differing,
    }
    for path, why in passes.excluded.items():
        if INPUTS not in path and path not in differing:
            kinds.setdefault(why, []).append(path)
    shown = lambda paths: ", ".join(paths[:6]) + (", ..." if len(paths) > 6 else "")
    return tuple(f"not compared, {why}: {shown(paths)}" for why, paths in kinds.items() if paths)


def _advice(expected: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """Says which part of the reference has the model's modules, if they are in a wrapper."""
    paths = [path for path in actual if path]
    if not paths or any(path in expected for path in paths):
        return []
    places = [x.removesuffix(paths[0]) for x in expected if x.endswith(f".{paths[0]}")]
    places = [x for x in places if all(x + path in expected for path in paths)]
    return [
        f"the model's modules are in {x[:-1]} of the reference: compare with that" for x in places
    ]


def _gradients(original: Side, actual: Side, forward: Passes) -> tuple[list[Comparison], list[str]]:
    """Compares gradients, those of the last params first; notes those that are not compared."""
    draw = np.random.default_rng(0).standard_normal
    cotangents = [draw(x.shape, np.float32) for x in forward.expected.values[OUTPUT]]
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
    missing = passes.alone()
    notes = [f"gradients that are not compared: {', '.join(missing)}"] if missing else []
    return compare(passes, {}), notes


def _operators(
    original: Side, pattern: str | None
) -> tuple[list[Comparison], dict[str, str], list[str]]:
    """Returns (comparisons, places by path, notes) of the operators of some modules.

    Raises:
      Unsupported: the reference calls none of torch's functions.
      WrongArguments: no module has such a path.
    """
    if pattern is None:
        return [], {}, []
    if original.name != "torch":
        raise Unsupported(
            f"operators={pattern!r} beside {original.name}",
            why="operators are those that torch code calls; TensorFlow's nodes are compared anyway",
            do="leave it out, or compare with the torch module",
        )
    from anyjax.compare.sides.torch_side import TorchSide
    from anyjax.parity.operators import compare_operators

    recorded = cast(TorchSide, original).operators(pattern)
    comparisons, unserved = compare_operators(recorded)
    notes = [f"operators that are not compared: {', '.join(unserved)}"] if unserved else []
    faulty = {x.path for x in faults(comparisons)}
    return comparisons, {x.path: x.place for x in recorded if x.path in faulty}, notes


def _reproduce(
    model: Model | nnx.Module | linen.Module,
    original: Side,
    actual: ModelSide,
    modules: list[Comparison],
    folder: str | os.PathLike[str],
) -> str:
    """Writes the smallest part at fault to a folder; returns what it is."""
    if original.name == "torch" and isinstance(model, Model):
        from anyjax.compare.sides.torch_side import TorchSide
        from anyjax.parity.reproduce.torch_part import reproduce

        return reproduce(folder, model, cast(TorchSide, original), faults(modules)[0])
    if original.name == "TensorFlow":
        from anyjax.compare.sides.tensorflow_side import GraphSide, TensorFlowSide
        from anyjax.parity.reproduce import tensorflow_node as reproduce_node

        sides = cast(TensorFlowSide, original), cast(GraphSide, actual)
        return reproduce_node.reproduce(folder, *sides, faults(modules)[0])
    raise Unsupported(
        f"a folder that reproduces a fault beside {original.name}",
        why="it needs the code of both sides",
        do="compare with the torch module or the TensorFlow function",
    )


def _predictions(passes: Passes, side: ModelSide) -> Predictions | None:
    """Compares the predictions of language models: logits for each of the tokens that came in."""
    logits, expected = (side.values[OUTPUT] for side in (passes.actual, passes.expected))
    arrays = [np.asarray(x) for x in jax.tree.leaves((side.args, side.kwargs)) if is_array(x)]
    ids = next((x for x in arrays if x.ndim == 2 and x.dtype.kind in "iu"), None)
    if ids is None or not logits or logits[0].ndim != 3 or logits[0].shape[:2] != ids.shape:
        return None
    if logits[0].shape != expected[0].shape or ids.max() >= logits[0].shape[-1] or ids.min() < 0:
        return None
    return predictions(logits[0], expected[0], ids)
