"""Calls and other functions of a model as serialized programs of jax.export."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from anyjax import trees
from anyjax.dtypes import shape_of
from anyjax.errors import DataDependent, Unsupported, WrongValue
from anyjax.numerics.attention import KERNELS
from anyjax.private_names import Inconclusive
from anyjax.saved.calls import describe_call, describe_output
from anyjax.saved.checksum import Json
from anyjax.saved.dimensions import is_symbolic

PLATFORMS = ("cpu", "cuda", "tpu")
KNOWN = (*PLATFORMS, "rocm")
# JAX's words for a relation of sizes that it cannot decide.
COMPARISON = re.compile(r"comparison '(.+?)' (<=|>=|==|<|>) '(.+?)' is inconclusive")


@dataclass(frozen=True)
class Extra:
    """A further program that is saved with a model, by name.

    Attributes:
      name: of the program and its file.
      function: (params, state, *arrays) -> a list of arrays.
      arrays: the shapes and dtypes of ``arrays``; None for an absent argument.
      about: its description in ``model.json``.
    """

    name: str
    function: Callable
    arrays: Sequence[Any]
    about: dict[str, Any] = field(default_factory=dict)


def check_platforms(platforms: Sequence[str]) -> None:
    """Raises WrongValue if a platform is none of jax.export's, or there is none."""
    unknown = sorted({*platforms} - {*KNOWN}) if not isinstance(platforms, str) else [platforms]
    if unknown or not platforms:
        raise WrongValue(
            f"platforms={platforms!r}",
            why=f"programs are made for {', '.join(KNOWN)}",
            do=f"give some of these: platforms={PLATFORMS}",
        )


def export_call(
    source, params, state, args, kwargs, rng, platforms: Sequence[str], known=None
) -> tuple[dict[str, Any], bytes]:
    """Returns (description of a call, its program); ``known`` are state entries as constants."""
    known = known or {}
    leaves, structure = jax.tree.flatten((args, kwargs))
    inputs = describe_call(leaves, trees.names(args, kwargs, source.positional))
    kind = None if rng is None else str(jax.random.key_impl(rng))
    description: dict[str, Any] = {"inputs": inputs, "rng": kind}

    def flat(params, state, arrays, key):
        array = iter(arrays)
        full = [next(array) if trees.is_array(x) else x for x in leaves]
        args, kwargs = jax.tree.unflatten(structure, full)
        out, written = source(
            params,
            state | known,
            args,
            kwargs,
            None if key is None else jax.random.wrap_key_data(key, impl=kind),
        )
        outputs: list[Any] = []
        description["output"] = describe_output(out, outputs)
        description["missed"] = sorted(getattr(written, "missed", written))
        return outputs, dict(written), getattr(written, "holds", None)

    arrays = [shape_of(x) for x in leaves if trees.is_array(x)]
    key = None if rng is None else jax.eval_shape(jax.random.key_data, rng)
    try:
        program = _export(flat, params, state, (arrays, key), platforms)
        serialized = _serialized(program, inputs)
    except DataDependent as error:
        settings = {k: v for k, v in state.items() if trees.is_setting(v)}
        if known or not settings or trees.STATE not in error.arguments:
            raise
        return export_call(source, params, state, args, kwargs, rng, platforms, settings)
    except Inconclusive as error:
        raise _unknown_size(error, inputs) from error
    description["known"] = {k: np.asarray(v).tolist() for k, v in known.items()}
    return description, serialized


def _serialized(program: jax.export.Exported, inputs: Json) -> bytes:
    """Returns a program and its derivative as bytes."""
    try:
        return bytes(program.serialize(vjp_order=1))
    except (ValueError, TypeError) as error:  # such as of windows that may lie beyond an end
        if isinstance(error, Inconclusive) or not any(map(is_symbolic, program.in_avals)):
            raise
        raise _unknown_size(error, inputs) from error


def export_extra(extra: Extra, params, state, platforms: Sequence[str]) -> bytes:
    """Exports a further program; it has no derivative."""
    arrays = [None if x is None else shape_of(x) for x in extra.arrays]
    return bytes(_export(extra.function, params, state, arrays, platforms).serialize())


def _export(
    function: Callable, params, state, arrays: Sequence[object], platforms
) -> jax.export.Exported:
    shapes = jax.tree.map(shape_of, (dict(params), dict(state)))
    return exported(function, platforms)(*shapes, *arrays)


def exported(function: Callable, platforms: Sequence[str]) -> Callable[..., jax.export.Exported]:
    """Returns ``jax.export.export`` of a function, whose attention may be cuDNN's.

    Raises:
      Unsupported: there is a program of a loaded model in it, which is for other platforms.
    """
    export = jax.export.export(
        jax.jit(function), platforms=tuple(platforms), disabled_checks=kernel_checks()
    )

    def run(*args, **kwargs):
        try:
            return export(*args, **kwargs)
        except ValueError as error:
            if "was exported for platforms" not in str(error):
                raise
            raise Unsupported(
                f"a program for {', '.join(platforms)} of a model that was loaded",
                why=str(error).partition("\n")[0][:300],
                do="give platforms= that it was saved for, or export the model it was made of",
            ) from error

    return run


def kernel_checks() -> list[jax.export.DisabledSafetyCheck]:
    """Returns the checks of JAX that would refuse a program with kernels of attention."""
    return [*map(jax.export.DisabledSafetyCheck.custom_call, KERNELS)]


def _unknown_size(error: Exception, inputs: Json) -> Unsupported:
    """Returns the error for a model that compares unknown sizes."""
    shown = ", ".join(f"{k} {v}" for k, v in inputs.items() if isinstance(v, str) and "[" in v)
    notes = [x for x in getattr(error, "__notes__", []) if x.startswith("in ")]  # by frontends
    sizes = {*re.findall(r"[A-Za-z_]\w*", shown)}
    open_sizes = [x for x in re.findall(r"[A-Za-z_]\w*", str(error)) if x in sizes]
    constraint = f"{open_sizes[0] if open_sizes else 'length'} >= 8"
    if match := COMPARISON.search(str(error)):
        one, relation, other = match.groups()
        constraint = f"{one} {'<=' if relation[0] == '>' else '>='} {other}"
        constraint = constraint if relation in "<>" else f"{one} {relation} {other}"
    return Unsupported(
        "the model's code, or its derivative, depends on a size that is not known",
        where="; ".join([shown, *notes]),
        why=str(error).partition("\n")[0][:300],
        do=f'fix that size in shapes=, or say more of it: constraints=("{constraint}",)',
    )
