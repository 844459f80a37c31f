"""XLA's own operators, as jax2tf's older graphs have them, and others that only the bridge serves.

TensorFlow computes them where it compiles, and has gradients for few of them.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

xla = importlib.import_module("tensorflow.compiler.tf2xla.python.xla")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((4, 5)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 6, 6, 2)).astype(np.float32)
KERNEL = RNG.standard_normal((3, 3, 2, 3)).astype(np.float32)
SCALAR = tf.TensorSpec([], tf.float32)


def numbers(kind, **lists):
    proto = getattr(xla.xla_data_pb2, kind)()
    for name, value in lists.items():
        if isinstance(value, int):
            setattr(proto, name, value)
        else:
            getattr(proto, name).extend(value)
    return proto


def pure(function):
    return tf.function(function).get_concrete_function(SCALAR, SCALAR)


ADD = lambda: pure(lambda a, b: a + b)
DOT = numbers("DotDimensionNumbers", lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0])
CONV = numbers(
    "ConvolutionDimensionNumbers",
    input_batch_dimension=0, input_spatial_dimensions=[1, 2], input_feature_dimension=3,
    kernel_spatial_dimensions=[0, 1], kernel_input_feature_dimension=2,
    kernel_output_feature_dimension=3, output_batch_dimension=0,
    output_spatial_dimensions=[1, 2], output_feature_dimension=3,
)  # fmt: skip
GATHER = numbers(
    "GatherDimensionNumbers",
    offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1,
)  # fmt: skip
SCATTER = numbers(
    "ScatterDimensionNumbers",
    update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0],
    index_vector_dim=1,
)  # fmt: skip
CASES = {
    "dot": (lambda x, y: xla.dot_general(x, y, DOT), X, Y),
    "einsum": (lambda x, y: xla.einsum(x, y, equation="ab,bc->ac"), X, Y),
    "conv": (lambda x, w: xla.conv(x, w, [1, 1], [(1, 1), (1, 1)], [1, 1], [1, 1], CONV),
             IMAGE, KERNEL),
    "reduce": (lambda x: xla.reduce(x, 0.0, [1], ADD()), X),
    "reduce_window": (lambda x: xla.reduce_window(x, 0.0, ADD(), [2, 2]), X),
    "pad": (lambda x: xla.pad(x, 1.0, [1, 0], [0, 2], [1, 0]), X),
    "gather": (lambda x: xla.gather(x, tf.constant([2, 0]), GATHER, [1, 4]), X),
    "scatter": (lambda x: xla.scatter(x, tf.constant([2, 0]), x[:2] * 3, ADD(), SCATTER), X),
    "dynamic_slice": (lambda x: xla.dynamic_slice(x, [1, 1], [2, 2]), X),
    "dynamic_update_slice": (lambda x: xla.dynamic_update_slice(x, x[:2, :2], [1, 1]), X),
    "sort": (xla.sort, X),
    "key_value_sort": (lambda x: xla.key_value_sort(x[0], x[1]), X),
    "reduce_precision": (lambda x: xla.reduce_precision(x, 5, 20), X),
    "sparse_to_dense": (lambda x: tf.raw_ops.SparseToDense(
        sparse_indices=[[0, 1], [2, 3]], output_shape=[3, 4], sparse_values=x[0, :2],
        default_value=1.0), X),
    "optimization_barrier": (lambda x: xla.optimization_barrier(x)[0] * 2, X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    function, *args = CASES[name]
    model = assert_agrees(tf.function(function, jit_compile=True), *args, grad=False, depth=256)
    assert_slopes(model, args)


def assert_slopes(model, args):
    """Reverse and forward mode are each other's transpose, and small steps agree with them."""
    total = lambda *xs: sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(model.apply({}, *xs)))
    args = tuple(map(jnp.asarray, args))
    ways = tuple(jnp.asarray(RNG.standard_normal(x.shape), x.dtype) for x in args)
    pushed = jax.jvp(total, args, ways)[1]
    pulled = jax.grad(total, tuple(range(len(args))))(*args)
    assert_close(sum(jnp.vdot(a, b) for a, b in zip(pulled, ways)), pushed, rtol=1e-3)
