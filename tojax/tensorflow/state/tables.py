"""Tables of numbers: what one holds when the program is traced is searched by the program."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from tojax.dtypes import fitting
from tojax.errors import Unsupported
from tojax.stablehlo.core.static_values import as_jax
from tojax.tensorflow.core.running import handles


@handles("LookupTableFindV2")
def find(run, node, inputs):
    table, wanted, default = inputs
    kinds = [tf.as_dtype(node.proto.attr[name].type) for name in ("Tin", "Tout")]
    keys, values = _content(node, table, *kinds)
    wanted, default = as_jax(wanted), as_jax(default)
    if not len(keys):
        return (jnp.broadcast_to(default, (*wanted.shape, *default.shape)),)
    at = jnp.minimum(jnp.searchsorted(keys, wanted), len(keys) - 1)
    there = jnp.asarray(keys)[at] == wanted
    there = there.reshape(*there.shape, *[1] * (values.ndim - 1))
    return (jnp.where(there, jnp.asarray(values)[at], default),)


@handles("LookupTableSizeV2")
def size(run, node, inputs):
    with tf.init_scope():
        return (tf.raw_ops.LookupTableSizeV2(table_handle=inputs[0]).numpy(),)


def _content(node, table: Any, keys: tf.DType, values: tf.DType) -> tuple[np.ndarray, np.ndarray]:
    """Its keys in order, and their values."""
    if tf.string in (keys, values):
        raise Unsupported(
            f"a table from {keys.name} to {values.name}",
            why="JAX has numbers, no strings",
            do="look the strings up before, and convert what comes after",
        )
    with tf.init_scope():
        found = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=keys, Tvalues=values)
    order = np.argsort(found.keys.numpy(), kind="stable")
    return fitting(found.keys.numpy()[order]), fitting(found.values.numpy()[order])
