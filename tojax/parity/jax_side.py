"""A Model as one side of a comparison."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tojax import trees
from tojax.calls.taps import Tap, split_readings
from tojax.errors import DataDependent
from tojax.model import Model
from tojax.parity.sides import INPUTS, OUTPUT, Call, Passed, Values, input_name, is_float

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from tojax.source import Source


@dataclass(frozen=True, eq=False)
class Forced:
    """An edit that gives modules the outputs of another pass, where shapes agree."""

    values: dict[str, list[jax.Array]]

    def __call__(self, path: str, out: PyTree) -> PyTree:
        arrays = self.values.get(path)
        leaves, structure = jax.tree.flatten(out)
        numbers = [i for i, x in enumerate(leaves) if trees.is_array(x) and is_float(x.dtype)]
        if arrays is None or [leaves[i].shape for i in numbers] != [x.shape for x in arrays]:
            return out
        for i, x in zip(numbers, arrays):
            leaves[i] = x.astype(leaves[i].dtype)
        return jax.tree.unflatten(structure, leaves)


@dataclass(frozen=True, eq=False)
class ForcedInputs:
    """An edit that gives modules the inputs of another pass, where shapes agree."""

    values: dict[str, list[jax.Array]]

    def __call__(self, path: str, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        forced = Forced(self.values)
        return {place: forced(f"{path}{INPUTS}{place}", x) for place, x in inputs.items()}


class JaxSide:
    """A Model that JAX runs.

    Attributes:
      name: in reports.
      compiled: whether the forward pass is one program.
      has_inputs: whether modules have inputs that are not the outputs of others.
      unit: what its parts are.
    """

    name = "JAX"
    compiled = True
    has_inputs = True
    unit = "modules"

    def __init__(self, model: Model, call: Call):
        self.model, self.rng = model, call.rng
        self.args, self.kwargs = jax.tree.map(model.source.as_array, (call.args, call.kwargs))

    def kinds(self) -> dict[str, str]:
        """Returns the class of each module, by path."""
        module = self.model.source.module
        if not hasattr(module, "named_modules"):
            return {}
        return {path: type(inner).__name__ for path, inner in module.named_modules()}

    def place(self, path: str) -> str:
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
        """Returns what computes the model, in 64 bits if it is to be ``wide``; its first tap reads
        all modules.
        """
        tap = Tap("", lenient=True)
        if wide and self.model.source.framework == "torch":
            from tojax.parity.wide import wide as torch_wide

            tap = replace(tap, around=torch_wide)
        return self.model.source.tapped(tap)

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
                result, _ = source(params, state, args, kwargs, self.rng)
                out, _ = split_readings(source.taps, result)
                return sum(
                    (x * jnp.asarray(c, x.dtype)).sum() for x, c in zip(_floats(out), cotangents)
                )

            params = jax.tree.map(cast, dict(self.model.params))
            inputs = [jnp.asarray(leaves[i]) for i in floats]
            of_params, of_inputs = jax.jit(jax.grad(total, (0, 1)))(params, inputs)
            values = dict(reversed(of_params.items()))
            values |= {input_name(i): x for i, x in zip(floats, of_inputs)}
            return Passed({k: [np.asarray(x)] for k, x in values.items()})

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Runs the model as one program; op by op, where values decide shapes."""
        with jax.enable_x64() if wide else nullcontext():
            cast = _wider if wide else lambda x: x
            leaves, structure = jax.tree.flatten((self.args, self.kwargs))
            places = [i for i, x in enumerate(leaves) if trees.is_array(x)]
            source = self.source(wide)
            if self.has_inputs:
                source = source.tapped(Tap("", inputs=True, lenient=True))

            def program(params, state, arrays, forced):
                full = [*leaves]
                for i, x in zip(places, arrays):
                    full[i] = x
                args, kwargs = jax.tree.unflatten(structure, full)
                tapped = source
                if forced is not None:
                    tapped = tapped.tapped(Tap("", Forced(forced), lenient=True))
                    if self.has_inputs:
                        tapped = tapped.tapped(Tap("", ForcedInputs(forced), inputs=True))
                result, _ = tapped(params, state, args, kwargs, self.rng)
                out, (outputs, *inputs) = split_readings(tapped.taps, result)
                values = {
                    f"{path}{INPUTS}{place}": _floats(x)
                    for path, called in (inputs[0] if inputs else {}).items()
                    for place, x in trees.plain_leaves(called)[0].items()
                }
                return values | {k: _floats(x) for k, x in outputs.items()} | {OUTPUT: _floats(out)}

            inputs = jax.tree.map(
                cast,
                (
                    self.model.params,
                    self.model.state,
                    [leaves[i] for i in places],
                    None
                    if forced is None
                    else {k: [*map(jnp.asarray, v)] for k, v in forced.items()},
                ),
            )
            run: Callable[[], Any] = lambda: program(*inputs)
            if self.compiled:
                with suppress(DataDependent):
                    compiled = jax.jit(program).lower(*inputs).compile()
                    run = lambda: compiled(*inputs)
            began = time.perf_counter()
            values = jax.block_until_ready(run())
            seconds = time.perf_counter() - began
            order = [k for k in values if k != OUTPUT] + [OUTPUT]
            return Passed({k: [*map(np.asarray, values[k])] for k in order}, seconds)


def _wider(x: PyTree) -> PyTree:
    if not trees.is_array(x):
        return x
    x = jnp.asarray(x)
    return x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _floats(tree: PyTree) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if trees.is_array(x) and is_float(x.dtype)]
