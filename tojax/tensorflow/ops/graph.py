"""Operators that only hold a graph together."""

from __future__ import annotations

import numpy as np

from tojax.tensorflow.core.running import handles


@handles("Const")
def const(run, node, inputs):
    return (np.asarray(node.attr("value")),)


@handles("NoOp", "ControlTrigger", "Assert")
def nothing(run, node, inputs):
    return ()


@handles("IdentityN")
def identity_n(run, node, inputs):
    return tuple(inputs)
