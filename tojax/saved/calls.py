"""What is said of a call and its output in ``model.json``, and whether a call fits it."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from tojax import trees
from tojax.errors import Unsupported
from tojax.saved import dimensions


class Output(dict):
    """An output whose class is not at hand: its fields as items and as attributes.

    Example:
      >>> Output(logits=1).logits
      1
    """

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


jax.tree_util.register_pytree_with_keys(
    Output,
    lambda o: ([(jax.tree_util.GetAttrKey(k), v) for k, v in o.items()], tuple(o)),
    lambda names, values: Output(zip(names, values)),
    lambda o: (list(o.values()), tuple(o)),
)


def describe_call(leaves: list[Any], names: list[str]) -> dict[str, Any]:
    """Names of the arguments with "dtype[shape]" for arrays and the value for everything else."""
    said: dict[str, Any] = {}
    for name, leaf in zip(names, leaves):
        if trees.is_array(leaf):
            said[name] = f"{np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype))}{list(leaf.shape)}"
        elif isinstance(leaf, trees.PLAIN):
            said[name] = leaf
        else:
            raise Unsupported(
                f"the argument {name} is a {type(leaf).__name__}",
                why="it cannot be stored",
                do="leave it out",
            )
    return said


def misfit(call: dict[str, Any], leaves: list[Any], names: list[str]) -> str | None:
    """Why a call is not the one that was described, None where it is."""
    saved, asked = call["inputs"], describe_call(leaves, names)
    if saved == asked:
        return None
    if {*saved} != {*asked}:
        return f"it takes {', '.join(saved) or 'no arguments'}"
    given = dict(zip(names, leaves))
    sizes: dict[str, int] = {}
    where: dict[str, str] = {}
    for name, said in saved.items():
        if said == asked[name]:
            continue
        if not trees.is_array(given[name]) or not isinstance(said, str) or "[" not in said:
            return f"{name} is {json.dumps(asked[name])}, not {json.dumps(said)}"
        dtype, bracket, rest = said.partition("[")
        written = dimensions.parts(bracket + rest)
        shape = given[name].shape
        if not asked[name].startswith(dtype + bracket) or len(shape) != len(written):
            return f"{name} is {asked[name]}, not {said}"
        for text, size in zip(written, shape):
            if text.isidentifier() and sizes.setdefault(text, size) != size:
                return f"{text} is {sizes[text]} in {where[text]} and {size} in {name}"
            where.setdefault(text, name)
    return _broken(call, sizes, given)


def _broken(call: dict[str, Any], sizes: dict[str, int], given: dict[str, Any]) -> str | None:
    """Which size is not what an expression or a constraint makes of the others."""
    if empty := next((name for name, size in sizes.items() if size < 1), None):
        return f"{empty} is {sizes[empty]}, at least 1 is needed"
    for name, described in call["inputs"].items():
        if not trees.is_array(given[name]):
            continue
        texts = dimensions.parts(described[described.index("[") :])
        for text, size in zip(texts, given[name].shape):
            if size != (wanted := dimensions.value(text, sizes)):
                said = text if text.isdigit() else f"{text}, which is {wanted}"
                return f"{name} has the size {size}, not {said}"
    for text in call.get("constraints", []):
        if not dimensions.value(text, sizes):
            known = ", ".join(f"{k} is {sizes[k]}" for k in sorted(dimensions.names(text)))
            return f"{text} does not hold: {known}"
    return None


def split(out: Any, arrays: list[Any]) -> Any:
    """A JSON description of an output; its arrays go into ``arrays``."""
    if export.is_symbolic_dim(out):  # a size that is known when the program runs
        out = jnp.asarray(out)
    if trees.is_array(out):
        arrays.append(out)
        return {"array": len(arrays) - 1}
    if isinstance(out, trees.PLAIN):
        return {"value": out}
    if isinstance(out, (tuple, list)):
        return {
            type(out).__name__ if type(out) in (tuple, list) else "tuple": [
                split(x, arrays) for x in out
            ]
        }
    if type(out) is dict:
        return {"dict": {k: split(v, arrays) for k, v in out.items()}}
    level = jax.tree_util.tree_flatten_with_path(out, is_leaf=lambda x: x is not out)[0]
    return {"object": {str(path[-1].name): split(v, arrays) for path, v in level}}


def join(told: Any, arrays: list[Any]) -> Any:
    """The output that ``split`` described."""
    ((kind, value),) = told.items()
    if kind == "array":
        return arrays[value]
    if kind == "value":
        return value
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](join(x, arrays) for x in value)
    made = {k: join(v, arrays) for k, v in value.items()}
    return made if kind == "dict" else Output(made)
