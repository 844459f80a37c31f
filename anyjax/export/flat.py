"""A call of a model as a function from named arrays to named arrays, as in other formats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from anyjax import multiprocess, trees
from anyjax.compare.differences import apart
from anyjax.dtypes import shape_of
from anyjax.errors import Unsupported, WrongArguments
from anyjax.model import Model
from anyjax.saved.dimensions import is_symbolic, suggested, symbolic
from anyjax.typing import PyTree

# The largest difference by rounding, as a fraction of the largest value, by bytes of the dtype.
TOLERANCE = {4: 1e-3, 2: 5e-2}


@dataclass
class Call:
    """A kind of call.

    Attributes:
      names: of the input arrays, valid as names of Python.
      specs: shapes, maybe with symbolic sizes, and dtypes of the inputs.
      examples: values of the inputs.
      constraints: of the sizes.
      outputs: names of the output arrays, set by the first trace.
    """

    model: Model
    leaves: list[Any]
    structure: Any
    names: list[str]
    specs: list[jax.ShapeDtypeStruct]
    examples: list[np.ndarray]
    constraints: list[str]
    outputs: list[str] = field(default_factory=list)

    def __call__(
        self, params: dict[str, jax.Array], state: dict[str, jax.Array], *arrays: Any
    ) -> list[Any]:
        """Returns the output arrays, in the order of ``outputs``."""
        array = iter(arrays)
        full = [next(array) if trees.is_array(x) else x for x in self.leaves]
        args, kwargs = jax.tree.unflatten(self.structure, full)
        out, written = self.model.source(params, state, args, kwargs)
        if written:
            raise Unsupported(
                f"a forward pass that writes to {', '.join(sorted(written)[:3])}",
                why="what is written has no place outside of JAX",
                do="export the evaluation mode: model.eval()",
            )
        pairs = named(out)
        self.outputs[:] = [name for name, _ in pairs]
        return [leaf for _, leaf in pairs]

    def want(self, arrays: Sequence[jax.typing.ArrayLike]) -> list[np.ndarray]:
        """Returns the model's outputs for these arrays."""
        run = jax.jit(lambda params, state, arrays: self(params, state, *arrays))
        return [np.asarray(x) for x in run(self.model.params, self.model.state, list(arrays))]


def call_of(
    model: Model,
    args: tuple,
    kwargs: dict,
    shapes: Mapping[str, str] | None,
    constraints: Sequence[str],
) -> Call:
    """Returns the call of an example, as ``model.save`` takes it.

    Raises:
      WrongArguments: there is no array, or ``shapes`` do not fit.
    """
    source, model = model.source, jax.tree.map(_one_device, model)
    trees.register((args, kwargs))
    values = [source.as_array(x) for x in jax.tree.leaves((args, kwargs))]
    args, kwargs, applicable = symbolic(source, args, kwargs, shapes, constraints)
    leaves, structure = jax.tree.flatten((args, kwargs))
    arguments = trees.names(args, kwargs, source.positional)
    indices = [i for i, x in enumerate(leaves) if trees.is_array(x)]
    if not indices:
        raise WrongArguments(
            "there is no call to export",
            why="a program is made for the shapes of its inputs",
            do="give an example: (model, where, *args, **kwargs)",
        )
    specs = [shape_of(leaves[i]) for i in indices]
    return Call(
        model=model,
        leaves=leaves,
        structure=structure,
        names=_unique([_clean(arguments[i]).replace(".", "_") for i in indices]),
        specs=specs,
        examples=[
            _example(arguments[i], values[i]).astype(spec.dtype) for i, spec in zip(indices, specs)
        ],
        constraints=applicable,
    )


def _one_device(x: jax.typing.ArrayLike) -> Any:
    """Moves an array of a mesh to a single device: other formats have no meshes, and on explicit
    axes operators would need shardings.
    """
    if isinstance(x, jax.Array) and not isinstance(x.sharding, SingleDeviceSharding):
        return jnp.asarray(multiprocess.values(x))
    return x


def _example(name: str, leaf: jax.typing.ArrayLike | jax.ShapeDtypeStruct) -> np.ndarray:
    """Returns the array, or ones for a ``ShapeDtypeStruct`` without named sizes.

    Raises:
      WrongArguments: a size has a name, and so no value.
    """
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return np.asarray(leaf)
    if not is_symbolic(leaf):
        return np.ones(leaf.shape, leaf.dtype)
    raise WrongArguments(
        f"an example of shape {leaf.shape}",
        why="what is written is compared with the model, for which sizes are needed",
        do=f"give arrays, and name sizes by shapes={suggested([name], [leaf])}",
    )


def named(out: PyTree) -> list[tuple[str, Any]]:
    """Returns the arrays of an output with their names."""
    pairs = jax.tree_util.tree_flatten_with_path(trees.register(out))[0]
    arrays = [(_name(path), leaf) for path, leaf in pairs if trees.is_array(leaf)]
    return [*zip(_unique([name for name, _ in arrays]), (leaf for _, leaf in arrays))]


def _name(path: tuple) -> str:
    return _clean(jax.tree_util.keystr(path)) or "output"


def _clean(name: str) -> str:
    """Replaces all but letters, digits, dots and underscores."""
    return re.sub(r"[^\w.]+", "_", name).strip("._")


def _unique(names: list[str]) -> list[str]:
    return [n if names.count(n) == 1 else f"{n}_{i}" for i, n in enumerate(names)]


def difference(want: Sequence[np.ndarray], got: Sequence[jax.typing.ArrayLike]) -> float:
    """Returns the largest difference of any output, relative to its largest finite value."""
    if len(want) != len(got):
        return float("inf")
    return max((apart(y, x) for x, y in zip(want, got)), default=0.0)


def rounding(model: Model, want: Sequence[np.ndarray] = ()) -> float:
    """Returns the largest difference that rounding explains, by the narrowest float."""
    arrays: list[Any] = [*model.params.values(), *want]
    widths = (x.dtype.itemsize for x in arrays if x.dtype.kind not in "iub")
    return TOLERANCE.get(min(widths, default=4), TOLERANCE[4])


def check_outputs(
    target: str, call: Call, want: Sequence[np.ndarray], got: Sequence[np.ndarray]
) -> None:
    """Raises Unsupported if the exported model computes something else than the model."""
    error = difference(want, got)
    if not error <= rounding(call.model, want):
        raise Unsupported(
            f"{target} of {call.model.source.name}: its outputs differ from the model's by "
            f"{error:.1e} of their largest value",
            why="an operator is written as another one than it is",
            do="keep to model.save(folder), and report the operator",
        )
