"""TensorFlow functions as users write them, converted: beside TensorFlow in value, gradient, vmap.

python tests/conformance/tensorflow_set.py 'nn.*' [--shard 0/2] [--tool tf2jax] [--out FILE]
python tests/conformance/tensorflow_set.py --compare       # both tools, side by side
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import logging
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf

import anyjax
from tests.conformance.stablehlo_cases.arguments import Case
from tests.conformance.tensorflow_cases import (
    array,
    control,
    gradients,
    library,
    math,
    nn,
    programs,
    shapes,
    tensor_arrays,
)
from tests.tolerance import assert_close

MODULES = (math, array, control, tensor_arrays, gradients, nn, library, programs, shapes)
CASES: dict[str, Case] = {name: case for module in MODULES for name, case in module.CASES.items()}
MODES = ("value", "eager", "grad", "jvp", "vmap")


@dataclasses.dataclass
class Prepared:
    """A case as TensorFlow runs it, from variables' values and arguments to arrays."""

    function: Any  # a tf.function
    variables: list[tf.Variable]
    args: list[np.ndarray]
    values: list[np.ndarray]

    def call(self, args: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs, then what the variables have become."""
        for variable, value in zip(self.variables, self.values):
            variable.assign(value)
        out = self.function(*map(tf.constant, args))
        found = flat(out) + [v.read_value() for v in self.variables]
        return [x.numpy() for x in found]

    def gradients(self, weights: list[np.ndarray]) -> list[np.ndarray | None]:
        """By the float arguments and then the trainable variables."""
        for variable, value in zip(self.variables, self.values):
            variable.assign(value)
        inputs = [tf.constant(x) for x in self.args]
        sources = [x for x in inputs if is_float(x)]
        sources += [v for v in self.variables if v.trainable]
        with tf.GradientTape() as tape:
            tape.watch([x for x in inputs if is_float(x)])
            out = [x for x in flat(self.function(*inputs)) if is_float(x)]
            total = [tf.reduce_sum(tf.math.real(x * w)) for x, w in zip(out, weights)]
            loss = tf.add_n([tf.cast(x, tf.float64) for x in total])
        found = tape.gradient(loss, sources)
        if all(g is None for g in found):
            raise LookupError("TensorFlow calls it not differentiable")
        zero = lambda x: np.zeros(x.shape, x.dtype.as_numpy_dtype)
        return [
            zero(x) if g is None else tf.convert_to_tensor(g).numpy()
            for x, g in zip(sources, found)
        ]


def flat(out: Any) -> list[Any]:
    return [tf.convert_to_tensor(x) for x in tf.nest.flatten(out, expand_composites=True)]


def is_float(x: Any) -> bool:
    return tf.as_dtype(x.dtype).is_floating or tf.as_dtype(x.dtype).is_complex


def prepare(name: str) -> Prepared:
    """Traced by TensorFlow; each time anew, because a program keeps its state in variables."""
    case = CASES[name]
    function, variables = case.function() if name in programs.MAKERS else (case.function, [])
    by_source = getattr(function, "__name__", "<lambda>") != "<lambda>"
    own = inspect.getmodule(function)
    autograph = by_source and own is not None and own.__name__.startswith("tests.")
    run = tf.function(function, autograph=autograph, input_signature=shapes.SIGNATURES.get(name))
    return Prepared(run, variables, case.arguments(name), [v.numpy() for v in variables])


def anyjax_call(case: Prepared) -> Callable:
    """(trainable, other, *args) -> outputs and then variables."""
    model = anyjax.from_tensorflow(case.function, *case.args)
    names = {id(v.handle): name for name, v in model.source.function.variables.items()}
    order = [names.get(id(v.handle)) for v in case.variables]

    def call(values, *args):
        held = {n: v for n, v in zip(order, values) if n is not None}
        params = {n: held[n] for n in model.params}
        state = {n: held[n] for n in model.state}
        out, new = model.apply(params, *args, state=state, mutable=True)
        after = {**params, **state, **new}
        rest = [v if n is None else after[n] for n, v in zip(order, values)]
        return jax.tree.leaves(out) + rest

    return call


def tf2jax_call(case: Prepared) -> Callable:
    import tf2jax

    function, params = tf2jax.convert(case.function, *case.args)
    names = [v.name.partition(":")[0] for v in case.variables]
    if {*names} != {*params} or len(names) != len({*names}):
        raise NotImplementedError(f"variables {names}, not {sorted(params)}")

    def call(values, *args):
        out, new = function(dict(zip(names, values)), *args)
        return jax.tree.leaves(out) + [new[n] for n in names]

    return call


TOOLS = {"anyjax": anyjax_call, "tf2jax": tf2jax_call}


def run(name: str, tool: str = "anyjax", eager: bool = True) -> dict[str, str]:
    """What is wrong, by mode: "" where nothing is; a mode that TensorFlow lacks is left out."""
    with warnings.catch_warnings(), jax.enable_x64(CASES[name].x64):
        warnings.simplefilter("ignore")
        case = prepare(name)
        want = case.call(case.args)
        weights = drawn(1, [x for x in want[: len(want) - len(case.variables)] if is_float(x)])
        sources = [x for x in case.args if is_float(x)]
        sources += [x for v, x in zip(case.variables, case.values) if v.trainable]
        try:
            slopes = case.gradients(weights) if weights and sources else None
        except (LookupError, ValueError, tf.errors.InvalidArgumentError):
            slopes = None  # TensorFlow has no gradient of it, or fails in its own
        other = [[perturbed(x) for x in case.args]] if case.args else []
        each = [want, *(case.call(args) for args in other)]
        modes = (
            ["value"]
            + ["eager"] * eager
            + ["grad", "jvp"] * bool(slopes)
            + ["vmap"] * (len(each) > 1)
        )
        try:
            call = TOOLS[tool](case)
        except Exception as error:
            return dict.fromkeys(modes, said(error))
        check = Check(call, case, want, weights, slopes, each)
        return {mode: attempted(check, mode, CASES[name].depth) for mode in modes}


@dataclasses.dataclass
class Check:
    """The modes: what a converted function gives, and what it should."""

    call: Callable
    case: Prepared
    want: list[np.ndarray]
    weights: list[np.ndarray]
    slopes: list[np.ndarray] | None
    each: list[list[np.ndarray]]

    def value(self):
        return jax.jit(self.call)(self.case.values, *self.case.args), self.want

    def eager(self):
        values = [jnp.asarray(v) for v in self.case.values]
        return self.call(values, *map(jnp.asarray, self.case.args)), self.want

    def _loss(self):
        """The loss as a function of what it is differentiated by, and that."""
        case = self.case
        places = [i for i, x in enumerate(case.args) if is_float(x)]
        trained = [i for i, v in enumerate(case.variables) if v.trainable]
        count = len(self.want) - len(case.variables)

        def loss(given):
            args, values = list(case.args), list(case.values)
            for i, x in zip(places, given):
                args[i] = x
            for i, x in zip(trained, given[len(places) :]):
                values[i] = x
            out = [x for x in self.call(values, *args)[:count] if is_float(x)]
            return sum(jnp.sum(jnp.real(x * w)) for x, w in zip(out, self.weights))

        start = [case.args[i] for i in places] + [case.values[i] for i in trained]
        return loss, [jnp.asarray(x) for x in start]

    def grad(self):
        loss, start = self._loss()
        found = jax.jit(jax.grad(loss))(start)
        return [jnp.conj(x) for x in found], self.slopes  # JAX's convention

    def jvp(self):
        loss, start = self._loss()
        ways = [jnp.asarray(x, s.dtype) for x, s in zip(drawn(2, start), start)]
        got = jax.jit(lambda a, b: jax.jvp(loss, [a], [b]))(start, ways)[1]
        terms = [
            np.sum(np.real(np.conj(np.asarray(s, np.result_type(s, np.float64))) * w))
            if s.dtype.kind != "V"
            else np.sum(s.astype(np.float64) * np.asarray(w, np.float64))
            for s, w in zip(self.slopes, ways)
        ]
        scale = sum(
            np.sum(np.abs(np.asarray(s, np.complex128 if s.dtype.kind == "c" else np.float64) * w))
            for s, w in zip(self.slopes, map(np.asarray, ways))
        )
        total = np.asarray(sum(terms), got.dtype)
        off = abs(float(got) - float(total)) / max(float(scale), 1e-30)
        return np.float32(off), np.float32(0)

    def vmap(self):
        args = [np.stack([x, perturbed(x)]) for x in self.case.args]
        got = jax.jit(jax.vmap(self.call, in_axes=(None, *[0] * len(args))))(
            self.case.values, *args
        )
        return got, [np.stack(x) for x in zip(*self.each)]


def attempted(check: Check, mode: str, depth: int) -> str:
    """What is wrong in a mode, "" if nothing is."""
    try:
        got, want = getattr(check, mode)()
    except Exception as error:
        return said(error)
    if mode == "jvp":
        kinds = [jax.dtypes.canonicalize_dtype(x.dtype) for x in check.slopes or []]
        limit = max(16 * float(jnp.finfo(k).eps) * depth**0.5 for k in kinds)
        return "" if got <= limit or not np.isfinite(got) else f"wrong: off by {got}"
    try:
        assert len(got) == len(want), f"{len(got)} outputs, not {len(want)}"
        for a, b in zip(got, want):
            assert jax.dtypes.canonicalize_dtype(b.dtype) == a.dtype, f"{a.dtype}, not {b.dtype}"
        assert_close([*map(np.asarray, got)], [*want], reduction=depth)
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())[:160]}"
    return ""


def said(error: Exception) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"


def drawn(seed: int, like: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(np.shape(x))).astype(x.dtype) for x in like]


def perturbed(x: np.ndarray) -> np.ndarray:
    """Another argument of the same kind."""
    if is_float(x):
        return (x * np.asarray(0.9, x.dtype)).astype(x.dtype)
    return ~x if x.dtype == bool else x // 2 + (x == 1).astype(x.dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default=".*")
    parser.add_argument("--shard", default="0/1", metavar="I/N")
    parser.add_argument("--tool", choices=TOOLS, default="anyjax")
    parser.add_argument("--compare", action="store_true", help="both tools, side by side")
    parser.add_argument("--no-eager", action="store_true", help="only what is compiled")
    parser.add_argument("--out", type=Path, help="keep results here; what it has is not run again")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    first, step = map(int, options.shard.split("/"))
    names = [n for n in CASES if re.fullmatch(options.pattern, n)][first::step]
    tools = [*TOOLS] if options.compare else [options.tool]
    kept = options.out.read_text() if options.out and options.out.exists() else ""
    done = {(x["tool"], x["name"]): x["found"] for x in map(json.loads, kept.splitlines())}
    for i, name in enumerate(names):
        for tool in tools:
            if (tool, name) in done:
                continue
            done[tool, name] = found = run(name, tool, not options.no_eager)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps({"tool": tool, "name": name, "found": found}) + "\n")
            for mode, wrong in found.items():
                if wrong and not options.compare:
                    print(f"{name} {mode}: {wrong}", flush=True)
        if i % 32 == 31:
            jax.clear_caches()
            keras.backend.clear_session()
    summary({key: found for key, found in done.items() if key[1] in names}, tools)


def summary(done: dict[tuple[str, str], dict[str, str]], tools: list[str]) -> None:
    """How many cases are right, by mode and tool."""
    print(f"{'':8}" + "".join(f"{tool:>20}" for tool in tools))
    for mode in MODES:
        cells = []
        for tool in tools:
            said_ = [found[mode] for (t, _), found in done.items() if t == tool and mode in found]
            right = sum(not x for x in said_)
            cells.append(f"{right:7} of {len(said_):4} {right / max(len(said_), 1):5.1%}")
        print(f"{mode:8}" + "".join(cells))


if __name__ == "__main__":
    main()
