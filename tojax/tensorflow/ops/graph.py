"""Operators that only hold a graph together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from tojax.errors import Unsupported
from tojax.tensorflow.core.options import option
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.core.schema import lowers


@handles("Const")
def const(run, node, inputs):
    value = np.asarray(node.attr("value"))
    for wide in ("float32", "float64"):
        if value.dtype == wide and option(f"force_const_{wide}_to_bfloat16"):
            return (value.astype(ml_dtypes.bfloat16),)
    return (value,)


@handles("NoOp", "ControlTrigger", "Assert")
def nothing(run, node, inputs):
    return ()


class Text:
    """A string that is put together when the program runs: it can be printed, nothing else."""

    def __init__(self, template: str, values: Sequence[Any]):
        self.template, self.values = template, values

    def __jax_array__(self):
        raise Unsupported(
            "a text of values that are traced",
            where=f"StringFormat {self.template!r}",
            why="arrays of JAX hold no strings",
            do="print it, or return the values themselves",
        )

    shape = property(__jax_array__)


@lowers("StringFormat")
def string_format(inputs, template, placeholder, summarize):
    """Where it is known, TensorFlow has made the text already."""
    pieces = [x.replace("{", "{{").replace("}", "}}") for x in template.split(placeholder)]
    return Text("{}".join(pieces), inputs)


@handles("PrintV2")
def print_(run, node, inputs):
    """By ``jax.debug.print``, to the standard output."""
    text = inputs[0]
    if isinstance(text, Text):
        jax.debug.print(text.template, *text.values)
    else:
        print(text.item().decode())
    return ()


@handles("IdentityN")
def identity_n(run, node, inputs):
    return tuple(inputs)
