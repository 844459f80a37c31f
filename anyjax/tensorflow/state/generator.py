"""``tf.random.Generator``: a variable that holds the counter and the key of a stream."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import x64
from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import known
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.ops.philox import halves, plus
from anyjax.tensorflow.state.variables import store, value_of

STRIDE = 256  # counters for every number


@handles("RngReadAndSkip", "RngSkip")
def read_and_skip(run, node, inputs):
    """Returns the state, and advances it by ``delta`` numbers."""
    handle, algorithm, delta = inputs
    if int(known(algorithm, "the algorithm of a generator")) != 1 or not x64():
        raise Unsupported(
            f"a tf.random.Generator of the algorithm {int(algorithm)}" if x64() else "its state",
            why="only Philox is served, and its state is 64-bit integers, which JAX narrows unless "
            "x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first, or use tf.random.stateless_*',
        )
    value = value_of(run, handle)
    words = halves(value)
    skipped = jnp.asarray(known(delta, "the size of a draw")).astype(np.uint64) * STRIDE
    counter = jnp.stack(plus(words[:2].reshape(4), halves(skipped)))
    advanced = lax.bitcast_convert_type(counter.reshape(2, 2), np.int64)
    store(run, handle, jnp.concatenate([advanced, value[2:]]))
    return (value,) if node.op == "RngReadAndSkip" else ()
