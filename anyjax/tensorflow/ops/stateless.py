"""``Stateless*``: TensorFlow's own stream of random numbers for a seed, under ``jit`` and ``vmap``.

They are handlers because the numbers depend on TensorFlow's dtype, not on JAX's.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from jax import lax

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import as_jax, is_known, known, sizes
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.ops import philox
from anyjax.tensorflow.ops.philox import Stream, halves, seeded

PHILOX = (1, 3)  # by name, and as the device prefers
FEW = 64  # more numbers than a seed needs


def stream_of(node, key, counter=None, alg=None) -> Stream:
    """Returns the stream of a seed, or of a key and a counter."""
    if counter is None:
        key, counter = seeded(key)
    elif int(known(alg, f"the algorithm of {node.op}")) not in PHILOX:
        raise Unsupported(
            f"{node.op} with the algorithm {int(alg)}",
            why="TensorFlow's own CPU kernels have Philox only",
            do='pass alg="philox" or "auto_select"',
        )
    return Stream(halves(key).reshape(-1)[:2], halves(counter).reshape(-1)[:4])


def stream_inputs(node, inputs):
    """Returns the shape, the stream and the parameters, for both versions of an operator."""
    shape, *rest = inputs
    seeds = 3 if node.op.endswith(("V2", "V3")) and not node.op.endswith("GammaV2") else 1
    size = sizes(known(shape, f"the shape of {node.op}"))
    return size, stream_of(node, *rest[:seeds]), rest[seeds:]


def serve(draw, *ops):
    """Makes ``draw(stream, count, dtype, *parameters)`` the handler of these operators."""

    @handles(*ops)
    def handler(run, node, inputs):
        size, stream, parameters = stream_inputs(node, inputs)
        dtype = dtypes.to_numpy(node.proto.attr["dtype"].type)  # not JAX's, which may be narrower
        return (draw(stream, math.prod(size), dtype, *parameters).reshape(size),)


def both_versions(name):
    return f"Stateless{name}", f"Stateless{name}V2"


serve(philox.uniform, *both_versions("RandomUniform"))
serve(philox.normal, *both_versions("RandomNormal"))
serve(philox.truncated_normal, *both_versions("TruncatedNormal"))
serve(philox.uniform_int, *both_versions("RandomUniformInt"))


def _full_int(stream, count, dtype):
    """Keeps a few numbers of a known stream known, also in 64 bits: seeds are made of them."""
    if count > FEW or not is_known(stream.counter):
        return philox.full_int(stream, count, dtype)
    with jax.ensure_compile_time_eval():
        words = np.asarray(philox.flat(stream, count * np.dtype(dtype).itemsize // 4))
    return words.view(dtype)


serve(_full_int, *both_versions("RandomUniformFullInt"))


@handles("StatelessRandomGetKeyCounter")
def key_counter(run, node, inputs):
    return seeded(inputs[0])


@handles("StatelessRandomGetAlg")
def algorithm(run, node, inputs):
    """Returns AUTO_SELECT, as XLA's devices do; the numbers are those of the CPU's Philox."""
    return (np.int32(tf.random.Algorithm.AUTO_SELECT.value),)


@handles("StatelessRandomGetKeyCounterAlg")
def key_counter_algorithm(run, node, inputs):
    return *seeded(inputs[0]), np.int32(PHILOX[0])


@handles("StatelessMultinomial")
def multinomial(run, node, inputs):
    """Searches the running sums of the probabilities, which are not divided by their total.

    The numbers are TensorFlow's as long as it does not share the rows among threads.
    """
    logits, number, seed = as_jax(inputs[0]), inputs[1], inputs[2]
    count, classes = int(known(number, "num_samples of StatelessMultinomial")), logits.shape[-1]
    logits = logits.astype(dtypes.to_jax(2))
    finite = lax.is_finite(logits)
    top = jnp.max(jnp.where(finite, logits, -jnp.inf), -1, keepdims=True)
    sums = jnp.cumsum(jnp.where(finite, lax.exp(logits - top), 0), -1)
    drawn = philox.uniform(stream_of(node, seed), logits.shape[0] * count, np.float64)
    thresholds = drawn.reshape(-1, count) * sums[:, -1:]
    samples = jax.vmap(lambda row, x: jnp.searchsorted(row, x, side="right"))(sums, thresholds)
    return (jnp.minimum(samples, classes - 1).astype(node.attr("output_dtype")),)


@handles("StatelessShuffle")
def shuffle(run, node, inputs):
    """Swaps each row in turn with itself or a later one."""
    value, *stream = inputs
    value = as_jax(value)
    if (count := value.shape[0]) < 2:
        return (value,)
    word = philox.flat(stream_of(node, *stream), count)

    def swap(i, order):
        j = i + lax.rem(word[i], (count - i).astype(np.uint32)).astype(np.int32)
        return order.at[jnp.stack([i, j])].set(order[jnp.stack([j, i])])

    order = lax.fori_loop(0, count - 1, swap, lax.iota(np.int32, count))
    return (jnp.take(value, order, 0),)
