"""Lookup tables: TensorFlow looks known keys up while tracing."""

from __future__ import annotations

import tensorflow as tf

from anyjax.stablehlo.core.static_values import is_known
from anyjax.tensorflow.core import text
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.engine.folding import kernel
from anyjax.tensorflow.state import tables


@handles("LookupTableFindV2")
def find(run, node, inputs):
    """Finds by TensorFlow's kernel, or in the program if keys and values are numbers."""
    if isinstance(inputs[0], tf.Tensor) and all(map(is_known, inputs[1:])):
        return kernel(node, inputs)
    text.refuse_text(node)
    return tables.find(run, node, inputs)
