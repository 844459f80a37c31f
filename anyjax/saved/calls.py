"""Descriptions of calls and outputs in ``model.json``, and whether a call fits one."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from anyjax import trees
from anyjax.calls.counted_array import CountedArray
from anyjax.errors import Unsupported
from anyjax.saved import dimensions
from anyjax.saved.checksum import Json
from anyjax.saved.folder import ABOUT

# Types that JSON preserves.
STORED = (bool, int, float, str, type(None))


class Output(dict):
    """An output whose class is not available: its fields are items and attributes. Fields precede
    methods of dict: a cache has ``keys`` and ``values``.

    Example:
      >>> Output(logits=1).logits, Output(keys=2).keys
      (1, 2)
    """

    def __getattribute__(self, name):
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)


jax.tree_util.register_pytree_with_keys(
    Output,
    lambda o: ([(jax.tree_util.GetAttrKey(k), v) for k, v in dict.items(o)], tuple(o)),
    lambda names, values: Output(zip(names, values)),
    lambda o: (list(dict.values(o)), tuple(o)),
)


def describe_call(leaves: Sequence[object], names: list[str]) -> Json:
    """Returns arguments by name: "dtype[shape]" for arrays, the value for everything else; the
    dtype, shape and values of arrays that are part of the program.
    """
    described: dict[str, Any] = {}
    for name, leaf in zip(names, leaves):
        if trees.is_array(leaf):
            described[name] = (
                f"{np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype))}{list(leaf.shape)}"
            )
        elif isinstance(leaf, STORED):
            described[name] = leaf
        elif isinstance(leaf, trees.Constant):
            shape = f"{jax.dtypes.canonicalize_dtype(leaf.array.dtype)}{[*leaf.array.shape]}"
            described[name] = {"array": shape, "values": leaf.array.tolist()}
        else:
            raise _not_stored(f"the argument {name}", leaf)
    return described


def shapes_of(inputs: Json) -> Json:
    """Returns the described arguments, without the values of those that the program holds."""
    return {k: f"{x['array']} as saved" if isinstance(x, dict) else x for k, x in inputs.items()}


def _not_stored(what: str, value: object) -> Unsupported:
    return Unsupported(
        f"{what} is a {type(value).__name__}",
        why=f"{ABOUT} holds numbers, strings and None, and files hold arrays",
        do="leave it out",
    )


def same(one: object, other: object) -> bool:
    """Returns True if two values are equal to a program: 1 is not 1.0 and not True, NaN is NaN.

    Example:
      >>> same(1, 1.0), same(float("nan"), float("nan")), same({"a": 1, "b": 2}, {"b": 2, "a": 1})
      (False, True, True)
    """
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def misfit(call: Json, leaves: Sequence[object], names: list[str]) -> str | None:
    """Returns why a call is not the one that was described, None if it is."""
    saved, described = call["inputs"], describe_call(leaves, names)
    if same(saved, described):
        return None
    if {*saved} != {*described}:
        return f"it takes {', '.join(saved) or 'no arguments'}"
    values = dict(zip(names, leaves))
    sizes: dict[str, int] = {}
    where: dict[str, str] = {}
    for name, expected in saved.items():
        if same(expected, described[name]):
            continue
        if isinstance(expected, dict):
            if why := _layout_misfit(name, expected, values[name]):
                return why
            continue
        is_shape = isinstance(expected, str) and dimensions.is_dtype(expected.partition("[")[0])
        if not trees.is_array(value := values[name]) or not is_shape:
            return f"{name} is {json.dumps(described[name])}, not {json.dumps(expected)}"
        dtype, bracket, sizes_text = expected.partition("[")
        texts = dimensions.parts(bracket + sizes_text)
        shape = value.shape
        if not described[name].startswith(dtype + bracket) or len(shape) != len(texts):
            return f"{name} is {described[name]}, not {expected}"
        for text, size in zip(texts, shape):
            if text.isidentifier() and sizes.setdefault(text, size) != size:
                return f"{text} is {sizes[text]} in {where[text]} and {size} in {name}"
            where.setdefault(text, name)
    return _size_misfit(call, sizes, values)


def _layout_misfit(name: str, expected: Json, value: object) -> str | None:
    """Returns why an argument is not the array that is part of the program, None if it is."""
    if isinstance(value, jax.core.Tracer):
        return f"the values of {name} are part of the program, and those of the call are traced"
    if not trees.is_array(value) or np.asarray(value).tolist() != expected["values"]:
        return f"{name} has other values, and they decide what is computed"
    return None


def _size_misfit(call: Json, sizes: dict[str, int], values: Mapping[str, object]) -> str | None:
    """Returns which size contradicts an expression or a constraint, None if all fit."""
    if empty := next((name for name, size in sizes.items() if size < 1), None):
        return f"{empty} is {sizes[empty]}, at least 1 is needed"
    for name, described in call["inputs"].items():
        if not trees.is_array(value := values[name]) or isinstance(described, dict):
            continue
        texts = dimensions.parts(described[described.index("[") :])
        for text, size in zip(texts, value.shape):
            if size != (expected := dimensions.value(text, sizes)):
                shown = text if text.isdigit() else f"{text}, which is {expected}"
                return f"{name} has the size {size}, not {shown}"
    for text in call.get("constraints", []):
        if not dimensions.value(text, sizes):
            shown = ", ".join(f"{k} is {sizes[k]}" for k in sorted(dimensions.names(text)))
            return f"{text} does not hold: {shown}"
    return None


KINDS: dict[type, str] = {list: "list", CountedArray: "counted"}


def describe_output(out: Any, arrays: list[jax.Array]) -> Any:
    """Returns a JSON description of an output, and appends its arrays to ``arrays``."""
    if export.is_symbolic_dim(out):  # a size that is known when the program runs
        out = jnp.asarray(out)
    if trees.is_array(out):
        arrays.append(out)
        return {"array": len(arrays) - 1}
    if isinstance(out, STORED):
        return {"value": out}
    if isinstance(out, (tuple, list)):
        kind = KINDS.get(type(out), "tuple")
        return {kind: [describe_output(x, arrays) for x in out]}
    if type(out) in (dict, OrderedDict, defaultdict):
        if wrong := [k for k in out if not isinstance(k, STORED)]:
            raise _not_stored("a key of the output", wrong[0])
        return {"dict": [[k, describe_output(v, arrays)] for k, v in out.items()]}
    level = jax.tree_util.tree_flatten_with_path(out, is_leaf=lambda x: x is not out)[0]
    if any(not path for path, _ in level):  # a leaf
        raise _not_stored("a part of the output", out)
    named = [(jax.tree_util.keystr(path, simple=True), v) for path, v in level]
    return {"object": [[k, describe_output(v, arrays)] for k, v in named]}


def build_output(description: Json, arrays: Sequence[jax.Array]) -> Any:
    """Builds an output from its description and arrays."""
    ((kind, value),) = description.items()
    if kind == "array":
        return arrays[value]
    if kind == "value":
        return value
    if kind == "counted":
        return CountedArray(*(build_output(x, arrays) for x in value))
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](build_output(x, arrays) for x in value)
    return {"dict": dict, "object": Output}[kind]((k, build_output(v, arrays)) for k, v in value)
