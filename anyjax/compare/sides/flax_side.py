"""A Flax module as the model of a comparison: what ``anyjax.flax.source`` wrote, or one by hand."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from anyjax.compare.recorders.flax_calls import watched
from anyjax.compare.side import INPUTS, OUTPUT, Call, Passed, Values, is_float
from anyjax.dtypes import fitting
from anyjax.errors import Unsupported
from anyjax.trees import is_array
from anyjax.typing import PyTree


class FlaxSide:
    """An nnx module, or a Linen module with its variables bound, that JAX runs.

    Its submodules are those of the reference by the names of their paths; arrays with channels last
    are compared as torch has them. It runs in its own precision alone.
    """

    name = "JAX"
    unit = "modules"
    masked: frozenset[str] = frozenset()
    op_by_op = has_wide = False

    def __init__(self, module: nnx.Module | linen.Module, call: Call):
        self.module, self.rng = module, call.rng
        array = lambda x: fitting(np.asarray(x)) if is_array(x) or hasattr(x, "numpy") else x
        self.args, self.kwargs = jax.tree.map(array, (call.args, call.kwargs))
        self.model_name = type(module).__name__
        self.expected: Values = {}
        self.channels_last: dict[str, list[bool]] = {}  # of the arrays under each path

    def kinds(self) -> dict[str, str]:
        """Returns the class of each module that the reference has, by the reference's path."""
        if isinstance(self.module, linen.Module):
            return {}
        paths = self._paths()
        named = ((_normalized(path), inner) for path, inner in nnx.iter_modules(self.module))
        return {paths[k]: type(x).__name__ for k, x in named if k in paths}

    def code_line(self, path: str) -> str:
        """Returns the line where the call of a module is written, or ""."""
        name = self.kinds().get(path.partition("#")[0], self.model_name)
        kinds = {type(x).__name__: type(x) for x in self._modules()}
        try:
            call = inspect.unwrap(kinds[name].__call__)
            _, line = inspect.getsourcelines(call)
            return f"line {line} of {inspect.getsourcefile(call)}".replace("\\", "/")
        except (OSError, TypeError, KeyError):
            return ""

    def gradients(self, cotangents: list[np.ndarray], wide: bool = False) -> Passed:
        """Raises Unsupported: parameters have other names and layouts than the reference's."""
        raise Unsupported(
            "gradients of a Flax module",
            where=self.model_name,
            why="its parameters have other names and layouts than torch's",
            do="leave gradients=True out, or compare the Model that the file was written from",
        )

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Runs the module as one program."""
        leaves, structure = jax.tree.flatten((self.args, self.kwargs))
        places = [i for i, x in enumerate(leaves) if is_array(x)]
        run, weights = self._function()

        def program(weights: PyTree, arrays: list[jax.Array], forced: Values | None) -> PyTree:
            full = [*leaves]
            for i, x in zip(places, arrays):
                full[i] = x
            calls = Calls(self._paths(), self.expected, forced, self.channels_last)
            args, kwargs = jax.tree.unflatten(structure, full)
            with watched(self.module, calls.record):
                out = run(weights, *args, **kwargs)
            return calls.values | {OUTPUT: _floats(out)}

        compiled = jax.jit(program)
        inputs = weights, [leaves[i] for i in places], None if forced is None else {**forced}
        computed = jax.block_until_ready(compiled(*inputs))
        began = time.perf_counter()
        jax.block_until_ready(compiled(*inputs))
        seconds = time.perf_counter() - began
        values = {k: [*map(np.asarray, computed[k])] for k in computed if k != OUTPUT}
        values[OUTPUT] = [*map(np.asarray, computed[OUTPUT])]
        if not self.channels_last:
            pairs = {k: zip(x, self.expected[k]) for k, x in values.items() if k in self.expected}
            self.channels_last = {k: [*starmap(_channels_last, x)] for k, x in pairs.items()}
        return Passed({k: self._as_torch(k, x) for k, x in values.items()}, seconds)

    def _as_torch(self, name: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Returns arrays with their channels where torch has them."""
        layouts = self.channels_last.get(name, [])
        if len(layouts) != len(arrays):
            return arrays
        return [np.moveaxis(x, -1, 1) if last else x for x, last in zip(arrays, layouts)]

    def _paths(self) -> dict[str, str]:
        """Returns the reference's paths by what is the same in both."""
        outputs = (path for path in self.expected if not {" ", "#"} & {*path})
        return {_normalized(path.split(".")): path for path in outputs if path}

    def _modules(self) -> Iterator[object]:
        if isinstance(self.module, nnx.Module):
            yield from (x for _, x in nnx.iter_modules(self.module))
        yield self.module

    def _function(self) -> tuple[Callable, PyTree]:
        """Returns (a function of weights and inputs, the weights.)"""
        if isinstance(self.module, linen.Module):
            module, variables = self.module.unbind()
            rngs = None if self.rng is None else {"dropout": self.rng}
            return partial(module.apply, rngs=rngs), variables
        graph, state = nnx.split(self.module)
        return lambda state, *args, **kwargs: nnx.merge(graph, state)(*args, **kwargs), state


class Calls:
    """The calls of one forward pass, by the reference's paths.

    Values that are ``forced`` take the place of the file's, with their channels last where
    ``channels_last`` says so.
    """

    def __init__(
        self,
        paths: Mapping[str, str],
        expected: Values,
        forced: Values | None,
        channels_last: Mapping[str, Sequence[bool]],
    ):
        self.paths, self.expected, self.channels_last = paths, expected, channels_last
        self.forced = forced or {}
        self.values: dict[str, list[jax.Array]] = {}
        self.runs: Counter[str] = Counter()

    def record(self, place: tuple, call: Callable, args: tuple, kwargs: dict) -> PyTree:
        """Calls a submodule; its values are noted, and others are put in their place."""
        path = self.paths.get(_normalized(place))
        if path is None:
            return call(*args, **kwargs)
        count, self.runs[path] = self.runs[path], self.runs[path] + 1
        path = f"{path}#{count}" if count else path
        args, kwargs = self._entered(path, (args, kwargs))
        return self._exchanged([path], call(*args, **kwargs))

    def _entered(self, path: str, inputs: PyTree) -> PyTree:
        """Returns the inputs, each float in the place of one of the reference's."""
        names = [k for k in self.expected if k.startswith(path + INPUTS) and self.expected[k]]
        return self._exchanged(names, inputs) if len(names) == len(_floats(inputs)) else inputs

    def _exchanged(self, names: Sequence[str], tree: PyTree) -> PyTree:
        """Notes the floats of a tree, all under one name or one under each; returns the tree with
        the forced ones in their place.
        """
        floats = _floats(tree)
        groups = [floats] if len(names) == 1 else [[x] for x in floats]
        replacements: list[jax.Array] = []
        for name, group in zip(names, groups):
            self.values[name] = group
            replacements += self._replaced(name, group)
        values = iter(replacements if replacements else floats)
        return jax.tree.map(lambda x: next(values) if _is_float(x) else x, tree)

    def _replaced(self, name: str, group: list[jax.Array]) -> list[jax.Array]:
        layouts = self.channels_last.get(name, [False] * len(group))
        forced = self.forced.get(name, ())
        arrays = [jnp.moveaxis(x, 1, -1) if last else x for x, last in zip(forced, layouts)]
        if [x.shape for x in arrays] != [x.shape for x in group]:
            return group
        return [jnp.asarray(x, y.dtype) for x, y in zip(arrays, group)]


def _channels_last(x: np.ndarray, expected: np.ndarray) -> bool:
    """Returns whether an array has its channels last, where torch has them in the middle."""
    if x.ndim < 3:
        return False
    moved = np.moveaxis(x, -1, 1)
    if x.shape != expected.shape or moved.shape != expected.shape:
        return moved.shape == expected.shape
    off = lambda y: np.abs(np.nan_to_num(y - expected, posinf=0, neginf=0)).sum()
    return bool(off(moved) < off(x))


def _normalized(path: Iterable[object]) -> str:
    """Returns a path without segments that only Flax, or only torch, has."""
    segments = ".".join(map(str, path)).replace("_", ".").split(".")
    return "_".join(x for x in segments if x not in ("layers", ""))


def _is_float(x: PyTree) -> bool:
    return is_array(x) and is_float(x.dtype)


def _floats(tree: PyTree) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]
