"""Keras layers beside their conversions: values, training mode, gradients and vmap.

python tests/conformance/keras_set.py 'LSTM.*' [--shard 0/2] [-v]
"""

from __future__ import annotations

import argparse
import collections
import random
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf

import anyjax
from anyjax.dtypes import fitting
from anyjax.errors import AnyjaxError
from tests.conformance.keras_cases import basic, ops, preprocessing, recurrent, spatial
from tests.conformance.keras_cases.arguments import Case
from tests.tolerance import assert_close

CASES: dict[str, Case] = {
    **basic.CASES,
    **spatial.CASES,
    **recurrent.CASES,
    **preprocessing.CASES,
    **ops.CASES,
}
MODES = ("value", "train", "grad", "vmap")


def run(name: str, modes: tuple[str, ...] = MODES) -> dict[str, str]:
    """What is wrong, by mode: "" where nothing is; a mode that a layer lacks is left out."""
    case = CASES[name]
    keras.utils.set_random_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.refused:
            return {"refused": refused(case)}
        both = Both(case)
        checks = {
            "value": both.value,
            "train": both.train if both.moded and case.train else None,
            "grad": both.gradient if case.grad and both.floats() else None,
            "vmap": both.mapped if case.vmap else None,
        }
        return {mode: _tried(checks[mode]) for mode in modes if checks[mode] is not None}


def refused(case: Case) -> str:
    """A clear error is what is right."""
    try:
        anyjax.from_tensorflow(case.make(), *case.args)(*case.args)
    except AnyjaxError as error:
        return "" if case.refused in str(error) else f"says {said(error)}"
    except Exception as error:
        return said(error)
    return "is not refused"


def _tried(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        return said(error)
    return ""


def said(error: Exception) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"


class Both:
    """A layer and its conversion, with the arguments of a case."""

    def __init__(self, case: Case):
        self.case, self.layer = case, case.make()
        self.moded = isinstance(self.layer, keras.layers.Layer)
        self.model = anyjax.from_tensorflow(self.layer, *case.args, **case.kwargs)
        self.variables = dict(self.model.source.function.variables)
        self.before = {name: v.numpy() for name, v in self.variables.items()}

    def _reset(self) -> None:
        """Variables as they were; Python's own random numbers from the start."""
        random.seed(0)
        for name, value in self.before.items():
            self.variables[name].assign(value)

    def _call(self, training: bool = False, args: Any = None, kwargs: Any = None) -> Any:
        """What TensorFlow gives."""
        self._reset()
        args = tensors(self.case.args if args is None else args)
        kwargs = tensors(self.case.kwargs if kwargs is None else kwargs)
        if self.moded:
            kwargs["training"] = training
        call = tf.function(self.layer, autograph=False) if self.case.compiled else self.layer
        return call(*args, **kwargs)

    def floats(self) -> bool:
        inputs = any(is_float(x) for x in jax.tree.leaves((self.case.args, self.case.kwargs)))
        return inputs or bool(self.model.params)

    def value(self) -> None:
        want = leaves(self._call())
        self._reset()
        got = self.model(*self.case.args, **self.case.kwargs)
        assert_agrees(jax.tree.leaves(got), want, self.case.depth, "value")

    def train(self) -> None:
        """With the state of now the draws are TensorFlow's own; with a key they are the key's."""
        want = leaves(self._call(training=True))
        after = {name: v.numpy() for name, v in self.variables.items()}
        self._reset()
        case, model = self.case, self.model.train()
        call = lambda **options: model.apply(
            model.params, *case.args, **case.kwargs, mutable=True, **options
        )
        got, state = call()
        assert_agrees(jax.tree.leaves(got), want, case.depth, "training mode")
        now = {**model.params, **state}
        assert_agrees(
            [now[k] for k in after], [fitting(x) for x in after.values()], case.depth, "state"
        )
        if case.train == "drawn":
            self._keys(call, want)

    def _keys(self, call, want) -> None:
        """The same key gives the same result, another key another one."""
        first, again, other = (jax.tree.leaves(call(rng=jax.random.key(k))[0]) for k in (1, 1, 2))
        assert [x.shape for x in first] == [x.shape for x in want]
        assert_agrees(again, first, 1, "the same key")
        assert any((np.asarray(a) != b).any() for a, b in zip(first, other)), "keys do not count"
        if self.case.check is not None:
            assert self.case.check(first[0], *self.case.args), "the statistics of the draw"

    def gradient(self) -> None:
        """Of a random projection of the outputs, by the float arguments and the params."""
        case, model = self.case, self.model
        given, structure = jax.tree.flatten((case.args, case.kwargs))
        places = [i for i, x in enumerate(given) if is_float(x)]
        theirs, cotangents = self._tape(given, structure, places)

        def loss(params, some):
            every = list(given)
            for i, x in zip(places, some):
                every[i] = x
            args, kwargs = jax.tree.unflatten(structure, every)
            out = jax.tree.leaves(model.apply(params, *args, **kwargs))
            total = sum(jnp.sum(jnp.real(out[i] * w)) for i, w in cotangents.items())
            return jnp.asarray(total, np.float32)

        of_params, of_args = jax.jit(jax.grad(loss, (0, 1)))(
            model.params, [jnp.asarray(given[i]) for i in places]
        )
        ours = [*of_args, *of_params.values()]
        wanted = theirs(list(of_params))
        wanted = [np.zeros(x.shape, x.dtype) if y is None else y for x, y in zip(ours, wanted)]
        scale = max(float(np.abs(x).max(initial=0)) for x in wanted)  # that of a bias may cancel
        assert_agrees(ours, wanted, 4 * case.depth, "gradient", scale)

    def _tape(self, given, structure, places):
        """TensorFlow's gradients by the names of params, and the cotangents of its outputs."""
        inputs = [tf.constant(x) if hasattr(x, "shape") else x for x in given]
        watched = [inputs[i] for i in places]
        with tf.GradientTape() as tape:
            tape.watch([*watched, *self.variables.values()])
            out = tf.nest.flatten(self._call(False, *jax.tree.unflatten(structure, inputs)))
            rng = np.random.default_rng(0)
            weights = {
                i: rng.standard_normal(x.shape).astype(x.dtype.as_numpy_dtype)
                for i, x in enumerate(out)
                if x.dtype.is_floating or x.dtype.is_complex
            }
            total = sum(tf.reduce_sum(tf.math.real(out[i] * w)) for i, w in weights.items())
        self._reset()

        def gradients(names):
            sources = [*watched, *(self.variables[n] for n in names)]
            found = tape.gradient(total, sources) if weights else [None] * len(sources)
            return [None if g is None else tf.convert_to_tensor(g).numpy() for g in found]

        return gradients, weights

    def mapped(self) -> None:
        """Over a new leading axis of every argument, against a call for each."""
        case, model = self.case, self.model
        given, structure = jax.tree.flatten((case.args, case.kwargs))
        places = [i for i, x in enumerate(given) if hasattr(x, "shape")]

        def call(*arrays):
            every = list(given)
            for i, x in zip(places, arrays):
                every[i] = x
            args, kwargs = jax.tree.unflatten(structure, every)
            return jax.tree.leaves(model.apply(model.params, *args, **kwargs))

        scale = lambda x, k: x * x.dtype.type(1 - k / 8) if is_float(x) else x
        stacked = [np.stack([scale(given[i], k) for k in range(2)]) for i in places]
        got = jax.jit(jax.vmap(call))(*stacked)
        each = [jax.jit(call)(*(x[k] for x in stacked)) for k in range(2)]
        assert_agrees(got, [np.stack(x) for x in zip(*each)], case.depth, "vmap")


def tensors(tree: Any) -> Any:
    return jax.tree.map(lambda x: tf.constant(x) if hasattr(x, "shape") else x, tree)


def leaves(out: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in tf.nest.flatten(out)]


def is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and x.dtype.kind in "fc"


def assert_agrees(got: Any, want: Any, depth: int, what: str, scale: float | None = None) -> None:
    """Structures, shapes, dtypes (as narrow as JAX's) and values."""
    assert len(got) == len(want), (what, len(got), len(want))
    for mine, other in zip(got, want):
        assert mine.dtype == jax.dtypes.canonicalize_dtype(other.dtype), (what, mine.dtype)
    try:
        assert_close([*got], [*want], reduction=depth, scale=scale)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None


def percentages(results: Mapping[str, Mapping[str, str]]) -> str:
    """A line for each mode: how many are right."""
    counts: collections.Counter = collections.Counter()
    for found in results.values():
        counts.update((mode, not wrong) for mode, wrong in found.items())
    lines = []
    for mode in dict.fromkeys(mode for mode, _ in counts):
        right, every = counts[mode, True], counts[mode, True] + counts[mode, False]
        lines.append(f"{mode:8} {right} of {every} = {100 * right / every:.1f} %")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default=".*")
    parser.add_argument("--shard", default="0/1", metavar="I/N")
    parser.add_argument("-v", action="store_true", help="print cases that are right, too")
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    results = {}
    for i, name in enumerate([n for n in CASES if re.fullmatch(options.pattern, n)][first::step]):
        try:
            results[name] = run(name)
        except Exception as error:  # of Keras itself, or of the conversion
            results[name] = dict.fromkeys(("value",), said(error))
        for mode, wrong in results[name].items():
            if wrong:
                print(f"{name} {mode}: {wrong}", flush=True)
        if options.v:
            print(name, *results[name], flush=True)
        if i % 32 == 31:
            jax.clear_caches()
    print(percentages(results))


if __name__ == "__main__":
    main()
