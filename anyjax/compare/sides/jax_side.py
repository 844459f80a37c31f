"""A Model as one side of a comparison."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from anyjax import trees
from anyjax.calls.explicit_mesh import call_on_mesh
from anyjax.calls.taps import Tap, split_readings
from anyjax.compare.side import (
    INPUTS,
    NUMBERS,
    OUTPUT,
    STATE,
    Call,
    Passed,
    Values,
    dtype_names,
    input_name,
    is_float,
    numbers,
    state_name,
    state_values,
    whole_numbers,
)
from anyjax.compare.store import Store
from anyjax.errors import DataDependent
from anyjax.model import Model
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from anyjax.source import Source


NOWHERE = r"(?!)"  # matches no path


@dataclass(frozen=True, eq=False)
class Forced:
    """An edit that gives modules the outputs of another pass, where shapes agree.

    Attributes:
      values: of the other pass, by path.
      store: takes the outputs before they are replaced, one module at a time; None where the
        program returns them.
    """

    values: Mapping[str, Sequence[ArrayLike]]
    store: Store | None = None

    def __call__(self, path: str, out: PyTree) -> PyTree:
        if self.store is not None and not is_traced(out):
            self.store[path] = [y for x in _floats(out) or _integers(out) for y in _comparable(x)]
        arrays = self.values.get(path)
        leaves, structure = jax.tree.flatten(out)
        numbers = [i for i, x in enumerate(leaves) if trees.is_array(x) and is_float(x.dtype)]
        if arrays is None or [leaves[i].shape for i in numbers] != [*map(np.shape, arrays)]:
            return out
        for i, x in zip(numbers, arrays):
            leaves[i] = jnp.asarray(x, leaves[i].dtype)
        return jax.tree.unflatten(structure, leaves)


@dataclass(frozen=True, eq=False)
class ForcedInputs(Forced):
    """An edit that gives modules the inputs of another pass, where shapes agree."""

    def __call__(self, path: str, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        forced = super().__call__
        return {place: forced(f"{path}{INPUTS}{place}", x) for place, x in inputs.items()}


class JaxSide:
    """A Model that JAX runs.

    Attributes:
      name: in reports.
      compiled: whether the forward pass is one program.
      has_inputs: whether modules have inputs that are not the outputs of others.
      unit: what its parts are.
      op_by_op: run op by op, and keep the values of one module at a time in memory.
    """

    name = "JAX"
    compiled = True
    has_inputs = True
    unit = "modules"
    op_by_op = False
    has_wide = True

    masked: frozenset[str] = frozenset()

    def __init__(self, model: Model, call: Call, without_dropout: bool = False):
        self.model, self.rng, self.without_dropout = model, call.rng, without_dropout
        self.model_name = model.source.name
        self.expected: Values = {}
        arguments = trees.register((call.args, call.kwargs))
        self.args, self.kwargs = jax.tree.map(model.source.as_array, arguments)

    def kinds(self) -> dict[str, str]:
        """Returns the class of each module, by path."""
        module = self.model.source.module
        if not hasattr(module, "named_modules"):
            return {}
        return {path: type(inner).__name__ for path, inner in module.named_modules()}

    def code_line(self, path: str) -> str:
        """Returns the line of the user's code where a module's forward is written, or ""."""
        module = self.model.source.module
        if not hasattr(module, "get_submodule"):
            return ""
        forward = type(module.get_submodule(path.partition("#")[0])).forward
        try:
            _, line = inspect.getsourcelines(forward)
            return f"line {line} of {inspect.getsourcefile(forward)}".replace("\\", "/")
        except (OSError, TypeError):
            return ""

    def source(self, wide: bool = False) -> Source:
        """Returns what computes the model, in 64 bits if it is to be ``wide``."""
        source: Source = self.model.source
        if source.framework != "torch":
            return source
        from anyjax.compare.sides.torch_side import around

        context = partial(around, wide, self.without_dropout)
        return source.tapped(Tap(NOWHERE, lambda path, out: out, lenient=True, around=context))

    def gradients(self, cotangents: list[np.ndarray], wide: bool = False) -> Passed:
        """Computes gradients, see ``Side``."""
        with jax.enable_x64() if wide else nullcontext():
            cast = _wider if wide else lambda x: x
            leaves, structure = jax.tree.flatten((self.args, self.kwargs))
            floats = [i for i, x in enumerate(leaves) if trees.is_array(x) and is_float(x.dtype)]
            source = self.source(wide)
            leaves = [cast(x) for x in leaves]

            def total(params, inputs):
                full = [*leaves]
                for i, x in zip(floats, inputs):
                    full[i] = x
                args, kwargs = jax.tree.unflatten(structure, full)
                state = jax.tree.map(cast, self.model.state)
                result, _ = call_on_mesh(source, params, state, args, kwargs, self.rng)
                out, _ = split_readings(source.taps, result)
                return sum(
                    (x * jnp.asarray(c, x.dtype)).sum() for x, c in zip(_floats(out), cotangents)
                )

            params = jax.tree.map(cast, dict(self.model.params))
            inputs = [jnp.asarray(leaves[i]) for i in floats]
            of_params, of_inputs = jax.jit(jax.grad(total, (0, 1)))(params, inputs)
            if unstack := getattr(self.model.source, "unstack", None):  # of rolled layers
                of_params = unstack(of_params)
            values = dict(reversed(of_params.items()))
            values |= {input_name(i): x for i, x in zip(floats, of_inputs)}
            return Passed({k: [np.asarray(x)] for k, x in values.items()})

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Runs the model as one program; op by op, where values decide shapes."""
        store = Store(limit=0) if self.op_by_op else None
        with jax.enable_x64() if wide else nullcontext():
            cast = _wider if wide else lambda x: x
            leaves = jax.tree.leaves((self.args, self.kwargs))
            arrays = [x for x in leaves if trees.is_array(x)]
            in_program = None if forced is None or store is not None else {**forced}
            inputs = *jax.tree.map(cast, (self.model.params, self.model.state, arrays)), in_program
            fixed: set[str] = set()
            program = partial(self._values, wide, store, forced, fixed)
            run: Callable[[], PyTree] = lambda: program(*inputs)
            if self.compiled and not self.op_by_op:
                with suppress(DataDependent):
                    compiled = jax.jit(program).lower(*inputs).compile()
                    run = lambda: compiled(*inputs)
            began = time.perf_counter()
            values = jax.block_until_ready(run())
            seconds = time.perf_counter() - began
            dtypes = dtype_names(x.dtype for x in values[NUMBERS] + values[OUTPUT])
            buffers = {k: values.pop(k)[0] for k in [*values] if STATE in k}
            order = [k for k in values if k not in (NUMBERS, OUTPUT)]
            passed = {k: [y for x in values[k] for y in _comparable(x)] for k in order}
            passed |= self._written(buffers)
            passed[NUMBERS] = numbers(map(np.asarray, values[NUMBERS]))
            passed[OUTPUT] = [*map(np.asarray, values[OUTPUT])]
        fixed |= {k for k in order if any(x.dtype.kind in "iub" for x in values[k])}
        if store is None:
            return Passed(
                passed, seconds, fixed={k: k for k in fixed}, dtypes=dtypes, writable=self.writable
            )
        store.update(passed)
        return Passed(store, seconds, dtypes=dtypes, writable=self.writable)

    @property
    def writable(self) -> frozenset[str]:
        """Names of the buffers that a call could write."""
        names = {k for k, x in self.model.state.items() if trees.is_array(x)}
        module = self.model.source.module
        if hasattr(module, "named_buffers"):
            names &= {k for k, _ in module.named_buffers()}
        return frozenset(names)

    def _written(self, buffers: dict[str, jax.Array]) -> Values:
        """Returns the buffers that a call changed, or that the reference's call did."""
        values = {k: np.asarray(self.model.state[k]) for k in self.writable}
        names = {k: state_name(k) for k in self.writable}
        written = {k: np.asarray(buffers.get(names[k], x)) for k, x in values.items()}
        same = lambda k: np.array_equal(
            written[k].astype(values[k].dtype), values[k], equal_nan=True
        )
        changed = [k for k in values if names[k] in self.expected or not same(k)]
        return {names[k]: state_values(written[k]) for k in sorted(changed)}

    def _values(
        self,
        wide: bool,
        store: Store | None,
        forced: Values | None,
        objects: set[str],
        params: dict[str, jax.Array],
        state: dict[str, jax.Array],
        arrays: list[jax.Array],
        traced: dict[str, list[jax.Array]] | None,
    ) -> dict[str, list[jax.Array]]:
        """Returns the floating-point values of modules; of the model alone if a store takes
        those of modules.
        """
        source = self.source(wide)
        if store is None:
            source = source.tapped(Tap("", lenient=True))
        if store is None and self.has_inputs:
            source = source.tapped(Tap("", inputs=True, lenient=True, pick=_of_call))
        replacements = forced if traced is None else traced
        if replacements is not None or store is not None:
            edit = Forced(replacements or {}, store)
            source = source.tapped(Tap("", edit, lenient=True))
            if self.has_inputs:
                edit = ForcedInputs(replacements or {}, store)
                source = source.tapped(Tap("", edit, inputs=True, lenient=True))
        leaves, structure = jax.tree.flatten((self.args, self.kwargs))
        filled = iter(arrays)
        full = [next(filled) if trees.is_array(x) else x for x in leaves]
        args, kwargs = jax.tree.unflatten(structure, full)
        result, written = call_on_mesh(source, params, state, args, kwargs, self.rng)
        out, readings = split_readings(source.taps, result)
        outputs, called = [*readings, {}, {}][:2]
        inputs = {
            f"{path}{INPUTS}{place}": x
            for path, call in called.items()
            for place, x in call.items()
        }
        objects |= {path for path, x in inputs.items() if isinstance(x, list) and x}
        values = {path: _floats(x) or _integers(x) for path, x in inputs.items()}
        return (
            values
            | {k: _floats(x) for k, x in outputs.items()}
            | {state_name(k): [x] for k, x in written.items() if k in self.writable}
            | {
                NUMBERS: [x for x in jax.tree.leaves(out) if trees.is_array(x) and not _floats(x)],
                OUTPUT: _floats(out),
            }
        )


def _of_call(call: PyTree) -> dict[str, jax.Array | list[jax.Array]]:
    """Returns the arrays of a call by place; of objects, such as caches, the floats in them."""
    places = trees.plain_leaves(call)[0].items()
    return {place: x if trees.is_array(x) else _floats(x) for place, x in places}


def is_traced(tree: PyTree) -> bool:
    """Returns whether a tree's values exist in a program alone."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


def _wider(x: PyTree) -> PyTree:
    if not trees.is_array(x):
        return x
    x = jnp.asarray(x)
    return x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _integers(leaf: PyTree) -> list[jax.Array]:
    return [leaf] if trees.is_array(leaf) and leaf.dtype.kind in "iub" else []


def _comparable(array: jax.Array) -> list[np.ndarray]:
    numbers = np.asarray(array)
    return whole_numbers(numbers) if numbers.dtype.kind in "iub" else [numbers]


def _floats(tree: PyTree) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if trees.is_array(x) and is_float(x.dtype)]
