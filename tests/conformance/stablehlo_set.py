"""JAX functions, exported and read back: beside the original in value, gradients and vmap.

python tests/conformance/stablehlo_set.py 'jnp.*' [--shard 0/2] [-v]
"""

from __future__ import annotations

import argparse
import collections
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import anyjax
from tests.conformance.stablehlo_cases import lax, library, numpy, programs
from tests.conformance.stablehlo_cases.arguments import Case
from tests.tolerance import assert_close

CASES: dict[str, Case] = {**numpy.CASES, **lax.CASES, **library.CASES, **programs.CASES}
MODES = ("jit", "grad", "jvp", "vmap")
# Any custom call may be in the artifact: JAX promises to keep some of them alone.
EVERY_CALL = [export.DisabledSafetyCheck.custom_call("ALL")]


def run(name: str) -> dict[str, str]:
    """What is wrong, by mode: "" where nothing is; a mode that the original lacks is left out."""
    case = CASES[name]
    with warnings.catch_warnings(), jax.enable_x64(case.x64):
        warnings.simplefilter("ignore")
        args = case.arguments(name)
        function = lambda *xs: tuple(jax.tree.leaves(case.function(*xs)))
        try:
            ours = read_back(function, args)
        except Exception as error:
            return {"export": said(error)}
        places = [i for i, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.inexact)]
        want = results(function, places, args, MODES if places else ("jit", "vmap"))
        want = {mode: value for mode, value in want.items() if not isinstance(value, str)}
        got = results(ours, places, args, tuple(want))
        found = {mode: compared(got[mode], want[mode], case.depth) for mode in want}
        try:
            eager = ours(*map(jnp.asarray, args))
            found["eager"] = compared(eager, want["jit"], case.depth)
        except Exception as error:
            found["eager"] = said(error)
        return found


def read_back(function: Callable, args: list[np.ndarray]) -> Callable:
    """The function, by way of the bytes that ``jax.export`` writes."""
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
    artifact = export.export(jax.jit(function), disabled_checks=EVERY_CALL)(*specs)
    model = anyjax.from_stablehlo(artifact.serialize())
    return lambda *xs: model.apply({}, *xs)


def said(error: Exception) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def results(function: Callable, places: list[int], args: Any, modes: tuple[str, ...]) -> dict:
    """By mode the outputs, or what was raised; all are compiled together where all work."""
    if not modes:
        return {}
    every = lambda *xs: {mode: TRANSFORMS[mode](function, places)(*xs) for mode in modes}
    try:
        return jax.tree.map(np.asarray, jax.jit(every)(*args))
    except Exception as error:
        if len(modes) == 1:
            return {modes[0]: said(error)}
    found = [results(function, places, args, (mode,)) for mode in modes]
    return {mode: value for one in found for mode, value in one.items()}


def compared(got: Any, want: Any, depth: int) -> str:
    """What is wrong with some results, "" if nothing is."""
    if isinstance(got, str):
        return got
    try:
        assert_close(got, want, reduction=depth)
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())[:160]}"
    return ""


def drawn(seed: int, like: Any) -> Any:
    """Random numbers of the shapes and dtypes of a tree of arrays."""
    rng = np.random.default_rng(seed)
    one = lambda x: (
        rng.standard_normal(x.shape)
        + (1j * rng.standard_normal(x.shape) if jnp.iscomplexobj(x) else 0)
    )
    return jax.tree.map(lambda x: jnp.asarray(one(x), x.dtype), like)


def floats(outputs: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(outputs) if jnp.issubdtype(x.dtype, jnp.inexact)]


def partial(function: Callable, places: list[int], args: Any) -> Callable:
    """The float outputs as a function of the float arguments."""

    def of_floats(*given):
        every = list(args)
        for i, x in zip(places, given):
            every[i] = x
        return floats(function(*every))

    return of_floats


def gradient(function: Callable, places: list[int]) -> Callable:
    def pulled(*args):
        out, pull = jax.vjp(partial(function, places, args), *[args[i] for i in places])
        return pull(drawn(1, out))

    return pulled


def forward(function: Callable, places: list[int]) -> Callable:
    def pushed(*args):
        given = [jnp.asarray(args[i]) for i in places]
        return jax.jvp(partial(function, places, args), given, drawn(2, given))[1]

    return pushed


def mapped(function: Callable, *_) -> Callable:
    """Over each argument and a smaller one beside it."""

    def other(x):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            return (x * 0.9).astype(x.dtype)
        return x // 2 if x.dtype != bool else ~x

    return lambda *args: jax.vmap(function)(*[jnp.stack([x, other(x)]) for x in args])


TRANSFORMS: dict[str, Callable] = {
    "jit": lambda function, *_: function,
    "grad": gradient,
    "jvp": forward,
    "vmap": mapped,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default=".*")
    parser.add_argument("--shard", default="0/1", metavar="I/N")
    parser.add_argument("-v", action="store_true", help="print cases that are right, too")
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    counts: collections.Counter = collections.Counter()
    for i, name in enumerate([n for n in CASES if re.fullmatch(options.pattern, n)][first::step]):
        for mode, wrong in (found := run(name)).items():
            counts[mode, not wrong] += 1
            if wrong:
                print(f"{name} {mode}: {wrong}", flush=True)
        if options.v:
            print(name, *found, flush=True)
        if i % 64 == 63:
            jax.clear_caches()
    for mode in ("export", "eager", *MODES):
        print(mode, counts[mode, True], "of", counts[mode, True] + counts[mode, False])


if __name__ == "__main__":
    main()
