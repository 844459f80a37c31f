"""Lookup tables: TensorFlow's own, asked while tracing where the keys are known."""

from __future__ import annotations

import tensorflow as tf

from tojax.tensorflow.core import text
from tojax.tensorflow.core.known import is_known
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.engine.folding import kernel


@handles("LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2")
def look_up(run, node, inputs):
    if not isinstance(inputs[0], tf.Tensor) or not all(map(is_known, inputs[1:])):
        text.check(node)
    return kernel(node, inputs)
