"""``Stateless*``: TensorFlow's own stream of random numbers for a seed, under ``jit`` and ``vmap``.

They are handlers because what they draw depends on the dtype that TensorFlow has, not JAX.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from jax import lax

from tojax.errors import Unsupported
from tojax.stablehlo.core.static_values import as_jax, is_known, known, sizes
from tojax.tensorflow.core import dtypes
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.ops import philox
from tojax.tensorflow.ops.philox import Stream, halves, seeded

PHILOX = (1, 3)  # by name, and as what the device prefers
FEW = 64  # as many numbers as seeds are made of


def stream_of(node, key, counter=None, alg=None) -> Stream:
    """The stream of a seed, or of a key and a counter."""
    if counter is None:
        key, counter = seeded(key)
    elif int(known(alg, f"the algorithm of {node.op}")) not in PHILOX:
        raise Unsupported(
            f"{node.op} with the algorithm {int(alg)}",
            why="TensorFlow's own CPU kernels have Philox only",
            do='pass alg="philox" or "auto_select"',
        )
    return Stream(halves(key).reshape(-1)[:2], halves(counter).reshape(-1)[:4])


def parts(node, inputs):
    """The shape, the stream and what else there is, of both versions of an operator."""
    shape, *rest = inputs
    taken = 3 if node.op.endswith(("V2", "V3")) and not node.op.endswith("GammaV2") else 1
    size = sizes(known(shape, f"the shape of {node.op}"))
    return size, stream_of(node, *rest[:taken]), rest[taken:]


def wide_dtype(node, name="dtype") -> np.dtype:
    """TensorFlow's dtype, which decides how many words a number takes."""
    return dtypes.to_numpy(node.proto.attr[name].type)


def serve(draw, *ops):
    """``draw(stream, count, dtype, *rest)`` as the handler of these operators."""

    @handles(*ops)
    def handler(run, node, inputs):
        size, stream, rest = parts(node, inputs)
        return (draw(stream, math.prod(size), wide_dtype(node), *rest).reshape(size),)


def version_2(name):
    return f"Stateless{name}", f"Stateless{name}V2"


serve(philox.uniform, *version_2("RandomUniform"))
serve(philox.normal, *version_2("RandomNormal"))
serve(philox.truncated_normal, *version_2("TruncatedNormal"))
serve(philox.uniform_int, *version_2("RandomUniformInt"))


def _full_int(stream, count, dtype):
    """A few numbers of a known stream stay known: seeds are made so, in 64 bits as well."""
    if count > FEW or not is_known(stream.counter):
        return philox.full_int(stream, count, dtype)
    with jax.ensure_compile_time_eval():
        found = np.asarray(philox.flat(stream, count * np.dtype(dtype).itemsize // 4))
    return found.view(dtype)


serve(_full_int, *version_2("RandomUniformFullInt"))


@handles("StatelessRandomGetKeyCounter")
def key_counter(run, node, inputs):
    return seeded(inputs[0])


@handles("StatelessRandomGetAlg")
def algorithm(run, node, inputs):
    """AUTO_SELECT, as XLA's devices say; the numbers are those of the CPU's Philox."""
    return (np.int32(tf.random.Algorithm.AUTO_SELECT.value),)


@handles("StatelessRandomGetKeyCounterAlg")
def key_counter_algorithm(run, node, inputs):
    return *seeded(inputs[0]), np.int32(PHILOX[0])


@handles("StatelessMultinomial")
def multinomial(run, node, inputs):
    """The running sums of the probabilities, not divided by their total, are searched.

    The numbers are TensorFlow's as long as it does not share the rows among threads.
    """
    logits, number, seed = as_jax(inputs[0]), inputs[1], inputs[2]
    count, classes = int(known(number, "num_samples of StatelessMultinomial")), logits.shape[-1]
    logits = logits.astype(dtypes.to_jax(2))
    finite = lax.is_finite(logits)
    top = jnp.max(jnp.where(finite, logits, -jnp.inf), -1, keepdims=True)
    sums = jnp.cumsum(jnp.where(finite, lax.exp(logits - top), 0), -1)
    drawn = philox.uniform(stream_of(node, seed), logits.shape[0] * count, np.float64)
    wanted = drawn.reshape(-1, count) * sums[:, -1:]
    found = jax.vmap(lambda row, x: jnp.searchsorted(row, x, side="right"))(sums, wanted)
    return (jnp.minimum(found, classes - 1).astype(node.attr("output_dtype")),)


@handles("StatelessShuffle")
def shuffle(run, node, inputs):
    """Each row in turn changes places with one of those from it on."""
    value, *stream = inputs
    value = as_jax(value)
    if (count := value.shape[0]) < 2:
        return (value,)
    word = philox.flat(stream_of(node, *stream), count)

    def swap(i, order):
        other = i + lax.rem(word[i], (count - i).astype(np.uint32)).astype(np.int32)
        return order.at[jnp.stack([i, other])].set(order[jnp.stack([other, i])])

    order = lax.fori_loop(0, count - 1, swap, lax.iota(np.int32, count))
    return (jnp.take(value, order, 0),)
