"""Operators that only hold a graph together."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tojax.tensorflow.core.options import option
from tojax.tensorflow.core.running import handles


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


@handles("IdentityN")
def identity_n(run, node, inputs):
    return tuple(inputs)
