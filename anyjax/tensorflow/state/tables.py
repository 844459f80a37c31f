"""Lookup tables of numbers: the program searches the content that one has when it is traced."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from anyjax.dtypes import fitting
from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core.running import handles


@handles("LookupTableFindV2")
def find(run, node, inputs):
    table, queries, default = inputs
    kinds = [tf.as_dtype(node.proto.attr[name].type) for name in ("Tin", "Tout")]
    keys, values = _content(node, table, *kinds)
    queries, default = as_jax(queries), as_jax(default)
    if not len(keys):
        return (jnp.broadcast_to(default, (*queries.shape, *default.shape)),)
    at = jnp.minimum(jnp.searchsorted(keys, queries), len(keys) - 1)
    hit = jnp.asarray(keys)[at] == queries
    hit = hit.reshape(*hit.shape, *[1] * (values.ndim - 1))
    return (jnp.where(hit, jnp.asarray(values)[at], default),)


@handles("LookupTableSizeV2")
def size(run, node, inputs):
    with tf.init_scope():
        return (tf.raw_ops.LookupTableSizeV2(table_handle=inputs[0]).numpy(),)


def _content(
    node, table: object, keys: tf.DType, values: tf.DType
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys of a table in order, and their values."""
    if tf.string in (keys, values):
        raise Unsupported(
            f"a table from {keys.name} to {values.name}",
            why="JAX has numbers, no strings",
            do="look the strings up before, and convert what comes after",
        )
    with tf.init_scope():
        content = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=keys, Tvalues=values)
    order = np.argsort(content.keys.numpy(), kind="stable")
    return fitting(content.keys.numpy()[order]), fitting(content.values.numpy()[order])
