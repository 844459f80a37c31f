"""A call of a model as a function from named arrays to named arrays, as other formats have it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from tojax import multiprocess, trees
from tojax.dtypes import shape_of
from tojax.errors import Unsupported, WrongArguments
from tojax.model import Model
from tojax.saved.dimensions import is_symbolic, suggested, symbolic

WORSE = {
    4: 1e-3,
    2: 5e-2,
}  # of the largest value, by bytes of the dtype: what is more is no rounding


@dataclass
class Call:
    """One kind of call.

    Attributes:
      names: of the arrays that go in, which Python takes for names.
      specs: their shapes, where sizes may have names, and dtypes.
      examples: values for them.
      constraints: what holds for the sizes.
      outputs: names of the arrays that come out, known after the first trace.
    """

    model: Model
    leaves: list[Any]
    structure: Any
    names: list[str]
    specs: list[jax.ShapeDtypeStruct]
    examples: list[np.ndarray]
    constraints: list[str]
    outputs: list[str] = field(default_factory=list)

    def __call__(self, params: Any, state: Any, *arrays: Any) -> list[Any]:
        """The arrays that come out, in the order of ``outputs``."""
        rest = iter(arrays)
        full = [next(rest) if trees.is_array(x) else x for x in self.leaves]
        args, kwargs = jax.tree.unflatten(self.structure, full)
        out, written = self.model.source(params, state, args, kwargs)
        if written:
            raise Unsupported(
                f"a forward pass that writes to {', '.join(sorted(written)[:3])}",
                why="what is written has no place outside of JAX",
                do="export the evaluation mode: model.eval()",
            )
        found = [
            (_name(path), leaf)
            for path, leaf in jax.tree_util.tree_flatten_with_path(trees.register(out))[0]
            if trees.is_array(leaf)
        ]
        self.outputs[:] = _apart([name for name, _ in found])
        return [leaf for _, leaf in found]

    def want(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """What the model gives for these arrays."""
        run = jax.jit(lambda params, state, arrays: self(params, state, *arrays))
        return [np.asarray(x) for x in run(self.model.params, self.model.state, list(arrays))]


def call_of(
    model: Model,
    args: tuple,
    kwargs: dict[str, Any],
    shapes: Mapping[str, str] | None,
    constraints: Sequence[str],
) -> Call:
    """The call of an example, as ``model.save`` takes it.

    Raises:
      WrongArguments: there is no array, or ``shapes`` do not fit.
    """
    source, model = model.source, jax.tree.map(_one_device, model)
    trees.register((args, kwargs))
    given = [source.as_array(x) for x in jax.tree.leaves((args, kwargs))]
    args, kwargs, held = symbolic(source, args, kwargs, shapes, constraints)
    leaves, structure = jax.tree.flatten((args, kwargs))
    called = trees.names(args, kwargs, source.positional)
    at = [i for i, x in enumerate(leaves) if trees.is_array(x)]
    if not at:
        raise WrongArguments(
            "there is no call to export",
            why="a program is made for the shapes of its inputs",
            do="give an example: (model, where, *args, **kwargs)",
        )
    names = _apart([_clean(called[i]).replace(".", "_") for i in at])
    specs = [shape_of(leaves[i]) for i in at]
    examples = [_example(called[i], given[i]).astype(x.dtype) for i, x in zip(at, specs)]
    return Call(model, leaves, structure, names, specs, examples, held)


def _one_device(x: Any) -> Any:
    """An array of a mesh as one of a single device: other formats know no meshes, and operators
    would have to say their shardings on explicit axes.
    """
    lies_apart = isinstance(x, jax.Array) and not isinstance(x.sharding, SingleDeviceSharding)
    return jnp.asarray(multiprocess.values(x)) if lies_apart else x


def _example(name: str, leaf: Any) -> np.ndarray:
    """The array itself; of a shape alone ones, with two for every size that has a name."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return np.asarray(leaf)
    if not is_symbolic(leaf):
        return np.ones(leaf.shape, leaf.dtype)
    raise WrongArguments(
        f"an example of shape {leaf.shape}",
        why="what is written is compared with the model, for which sizes are needed",
        do=f"give arrays, and name sizes by shapes={suggested([name], [leaf])}",
    )


def _name(path: tuple[Any, ...]) -> str:
    return _clean(jax.tree_util.keystr(path)) or "output"


def _clean(name: str) -> str:
    """Letters, digits, dots and underscores."""
    return re.sub(r"[^\w.]+", "_", name).strip("._")


def _apart(names: list[str]) -> list[str]:
    return [n if names.count(n) == 1 else f"{n}_{i}" for i, n in enumerate(names)]


def difference(want: Sequence[np.ndarray], got: Sequence[Any]) -> float:
    """The largest one of any output, relative to that output's largest finite value."""
    worst = 0.0
    if len(want) != len(got):
        return float("inf")
    for one, other in zip(want, got):
        wide = np.complex128 if np.iscomplexobj(one) or np.iscomplexobj(other) else np.float64
        one, other = (np.asarray(x).astype(wide) for x in (one, other))
        if one.shape != other.shape:
            return float("inf")
        differ = ~((one == other) | (np.isnan(one) & np.isnan(other)))
        scale = np.abs(one[np.isfinite(one)]).max(initial=1e-6)
        error = np.abs(one[differ] - other[differ]).max(initial=0.0) / scale
        worst = max(worst, float(error) if np.isfinite(error) else float("inf"))
    return worst


def rounding(model: Model, want: Sequence[np.ndarray] = ()) -> float:
    """The largest difference that is none of a wrong operator: of the narrowest float."""
    arrays: list[Any] = [*model.params.values(), *want]
    widths = (x.dtype.itemsize for x in arrays if x.dtype.kind not in "iub")
    return WORSE.get(min(widths, default=4), WORSE[4])


def check(what: str, call: Call, want: Sequence[np.ndarray], got: Sequence[Any]) -> None:
    """Raises Unsupported where what was written computes something else than the model."""
    found = difference(want, got)
    if not found <= rounding(call.model, want):
        raise Unsupported(
            f"{what} of {call.model.source.name}: its outputs differ from the model's by "
            f"{found:.1e} of their largest value",
            why="an operator is written as another one than it is",
            do="keep to model.save(folder), and report the operator",
        )
