"""jax.lax, primitive by primitive; indexing and convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.conformance.stablehlo_cases.arguments import lines, named

SHORT = {
    "abs asinh atan bessel_i0e bessel_i1e cbrt ceil cos cosh erf erfc exp exp2 expm1 floor "
    "is_finite logistic neg reciprocal round sign sin sinh square tan tanh stop_gradient "
    "cumsum cumprod cummax cummin cumlogsumexp optimization_barrier": "f3,4",
    "acos asin atanh erf_inv": "u3,4",
    "acosh": "g3,4",
    "log log1p sqrt rsqrt lgamma digamma": "p3,4",
    "add sub mul div max min atan2 complex eq ne lt le gt ge nextafter rem": "f3 f3",
    "pow": "p3 f3",
    "igamma igammac random_gamma_grad": "p4 p4",
    "zeta": "g4 p4",
    "betainc": "p4 p4 q4",
    "bitwise_and bitwise_or bitwise_xor mulhi": "w4 w4",
    "bitwise_not population_count clz": "w4",
    "shift_left shift_right_arithmetic shift_right_logical": "s4 j4",
    "dot batch_matmul_": "f3,4 f4,2",
    "batch_matmul": "f2,3,4 f2,4,2",
    "clamp": "u f5 g",
    "conj real imag": "c4",
}

NHWC = ("NHWC", "HWIO", "NHWC")
conv = lax.conv_general_dilated


def window(x, init, op, size=(2, 3), strides=(1, 2), padding="SAME", **dilations):
    return lax.reduce_window(x, init, op, size, strides, padding, **dilations)


def own(x, y):
    """A monoid that is none of JAX's own."""
    return x + y + x * y


ROWS = [
    ("polygamma", "p4", lambda x: lax.polygamma(2.0, x)),
    ("integer_pow", "f4", lambda x: lax.integer_pow(x, -3)),
    ("round_even", "f9", lambda x: lax.round(x * 2, lax.RoundingMethod.TO_NEAREST_EVEN)),
    ("reduce_precision", "f5", lambda x: lax.reduce_precision(x, 5, 10)),
    ("bitcast", "f4", lambda x: lax.bitcast_convert_type(x, jnp.int32)),
    ("broadcast", "f3", lambda x: lax.broadcast(x, (2,))),
    ("broadcast_in_dim", "f3", lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1,))),
    ("collapse", "f2,3,4", lambda x: lax.collapse(x, 1)),
    ("iota", "f4,3", lambda x: x + lax.broadcasted_iota(jnp.float32, (4, 3), 1)),
    ("concatenate", "f2,3 f1,3", lambda a, b: lax.concatenate([a, b], 0)),
    ("pad", "f3,4 f", lambda x, v: lax.pad(x, v, ((1, 2, 1), (-1, 0, 0)))),
    ("rev", "f3,4", lambda x: lax.rev(x, (0,))),
    ("select_n", "j4 f4 f4 f4", lax.select_n),
    ("select", "b4 f4 f4", lax.select),
    ("slice", "f6,5", lambda x: lax.slice(x, (1, 0), (6, 4), (2, 1))),
    ("dynamic_slice", "f6,5 j j", lambda x, i, j: lax.dynamic_slice(x, (i, j), (3, 4))),
    ("dynamic_update_slice", "f6,5 f2,2 j i",
     lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j))),
    ("dynamic_index", "f6,5 i", lambda x, i: lax.dynamic_index_in_dim(x, i, 0)),
    ("squeeze", "f3,1", lambda x: lax.squeeze(x, (1,))),
    ("split", "f7", lambda x: lax.split(x, (2, 5))),
    ("sort_keys", "j8 f8 f8", lambda a, b, c: lax.sort((a, b, c), num_keys=2)),
    ("sort_key_val", "j8 f8", lax.sort_key_val),
    ("sort_three", "j8 j8 j8 f8", lambda a, b, c, d: lax.sort((a, b, c, d), num_keys=3)),
    ("sort_axis", "f3,4 f3,4", lambda a, b: lax.sort((a, b), 0, num_keys=1)),
    ("top_k", "f3,9", lambda x: lax.top_k(x, 4)),
    ("top_k_int", "s9", lambda x: lax.top_k(x, 4)),
    ("approx_max_k", "f64", lambda x: lax.approx_max_k(x, 4)),
    ("approx_min_k", "f64", lambda x: lax.approx_min_k(x, 4)),
    ("argmax", "f3,4", lambda x: lax.argmax(x, 1, jnp.int32)),
    ("argmin", "n3,4", lambda x: lax.argmin(x, 1, jnp.int32)),
    ("reduce_own", "f3,4", lambda x: lax.reduce(x, np.float32(0), own, (1,))),
    ("reduce_pair", "f3,4 f3,4", lambda x, y: lax.reduce(
        (x, y), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))),
    ("reduce_logical", "b3,4",
     lambda x: (lax.reduce_and(x, (0,)), lax.reduce_or(x, (1,)), lax.reduce_xor(x, (0,)))),
    ("reduce_int", "s3,4", lambda x: (lax.reduce_sum(x, (0,)), lax.reduce_max(x, (1,)))),
    ("window_sum", "f5,7", lambda x: window(x, 0.0, lax.add)),
    ("window_max", "f5,7", lambda x: window(x, -jnp.inf, lax.max)),
    ("window_min", "f5,7", lambda x: window(x, jnp.inf, lax.min, padding="VALID")),
    ("window_dilated", "f5,7", lambda x: window(
        x, 0.0, lax.add, base_dilation=(2, 1), window_dilation=(1, 2))),
    ("window_mul", "f5,7", lambda x: window(x, 1.0, lax.mul)),
    ("window_own", "f4,5", lambda x: window(x, np.float32(0), own)),
    ("window_max_grad", "f6,6", jax.grad(lambda x: jnp.sum(jnp.sin(window(x, -jnp.inf, lax.max))))),
    ("window_min_grad", "f6,6", jax.grad(lambda x: jnp.sum(jnp.cos(window(x, jnp.inf, lax.min))))),
    ("cumulative_reverse", "f3,4", lambda x: (lax.cumsum(x, 1, True), lax.cummax(x, 0, True))),
    ("dot_general", "f2,3,4 f4,2,5",
     lambda a, b: lax.dot_general(a, b, (((2,), (0,)), ((0,), (1,))))),
    ("dot_precision", "f3,4 f4,2", lambda a, b: lax.dot(a, b, precision="highest")),
    ("dot_preferred", "h3,4 h4,2", lambda a, b: lax.dot(a, b, preferred_element_type=jnp.float32)),
    ("dot_algorithm", "f3,4 f4,2", lambda a, b: lax.dot(a, b, precision="F32_F32_F32")),
    ("dot_algorithm_bf16", "f3,4 f4,2",
     lambda a, b: lax.dot(a, b, precision=lax.DotAlgorithmPreset.BF16_BF16_F32)),
    ("dot_int8", "s3,4 s4,2", lambda a, b: lax.dot(
        a.astype(jnp.int8), b.astype(jnp.int8), preferred_element_type=jnp.int32)),
    ("ragged_dot", "f6,3 f2,3,4", lambda a, b: lax.ragged_dot(a, b, jnp.array([2, 4]))),
    ("conv1", "f2,3,9 f4,3,3", lambda x, k: conv(x, k, (1,), "SAME")),
    ("conv2", "f2,3,7,8 f4,3,3,3", lambda x, k: conv(x, k, (1, 1), "VALID")),
    ("conv3", "f1,2,5,5,5 f3,2,2,2,2", lambda x, k: conv(x, k, (1, 1, 1), "SAME")),
    ("conv_nhwc", "f2,7,8,3 f3,3,3,4",
     lambda x, k: conv(x, k, (2, 1), "SAME", dimension_numbers=NHWC)),
    ("conv_dilated", "f2,3,9,9 f4,3,3,3", lambda x, k: conv(
        x, k, (1, 2), [(1, 2), (0, 1)], rhs_dilation=(2, 1))),
    ("conv_base", "f2,3,5,5 f4,3,3,3", lambda x, k: conv(
        x, k, (1, 1), [(1, 1), (-1, 2)], lhs_dilation=(2, 3))),
    ("conv_groups", "f2,4,7,7 f6,2,3,3",
     lambda x, k: conv(x, k, (1, 1), "SAME", feature_group_count=2)),
    ("conv_depthwise", "f2,4,7,7 f4,1,3,3",
     lambda x, k: conv(x, k, (1, 1), "SAME", feature_group_count=4)),
    ("conv_batch_groups", "f4,3,6,6 f4,3,3,3",
     lambda x, k: conv(x, k, (1, 1), "SAME", batch_group_count=2)),
    ("conv_transpose", "f2,5,5,3 f3,3,3,4", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME")),
    ("conv_transpose_flip", "f2,5,5,3 f3,3,4,3",
     lambda x, k: lax.conv_transpose(x, k, (2, 2), "VALID", transpose_kernel=True)),
    ("conv_bf16", "h2,3,7 h4,3,3", lambda x, k: conv(x, k, (1,), "SAME")),
    ("conv_patches", "f2,3,6,6",
     lambda x: lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "SAME")),
    ("conv_grad", "f2,3,7,8 f4,3,3,3", jax.grad(
        lambda x, k: jnp.sum(jnp.sin(conv(x, k, (2, 1), "SAME", rhs_dilation=(1, 2)))), (0, 1))),
    ("conv_groups_grad", "f2,4,7 f6,2,3", jax.grad(
        lambda x, k: jnp.sum(jnp.sin(conv(x, k, (1,), "SAME", feature_group_count=2))), (0, 1))),
    ("fft_kinds", "f3,8", lambda x: (jnp.fft.rfft(x), jnp.fft.fft(x), jnp.abs(jnp.fft.fft2(x)))),
    ("gather_rows", "f8,5 i3", lambda x, i: x[i]),
    ("gather_pairs", "f8,5 i3 j3", lambda x, i, j: x[i, j]),
    ("gather_outer", "f8,5 i3 j4", lambda x, i, j: x[i[:, None], j]),
    ("gather_slice", "f6,5,4 j3", lambda x, i: x[:, 1:3, i % 4]),
    ("gather_negative", "f6 s4", lambda x, i: x.at[i].get(mode="fill", fill_value=-1)),
    ("gather_clip", "f6 s4", lambda x, i: x.at[i].get(mode="clip")),
    ("gather_promised", "f6 j4", lambda x, i: x.at[i].get(mode="promise_in_bounds")),
    ("gather_scalar", "f6,5 j", lambda x, i: x[i]),
    ("gather_batched", "f3,6 j3,2", lambda x, i: jax.vmap(lambda a, b: a[b])(x, i)),
    ("gather_bool", "f6", lambda x: x[np.array([1, 0, 1, 1, 0, 0], bool)]),
    ("scatter_set", "f6,5 f3,5", lambda x, u: x.at[np.array([4, 0, 2])].set(u)),
    ("scatter_add", "f6,5 j9 f9,5", lambda x, i, u: x.at[i].add(u)),
    ("scatter_mul", "f6 f3", lambda x, u: x.at[np.array([4, 0, 2])].mul(u)),
    ("scatter_mul_repeated", "f6 j9 f9", lambda x, i, u: x.at[i].mul(u)),
    ("scatter_min", "f6 f3", lambda x, u: x.at[np.array([4, 0, 2])].min(u)),
    ("scatter_max", "f6 f3", lambda x, u: x.at[np.array([4, 0, 2])].max(u)),
    ("scatter_sub", "f6 j9 f9", lambda x, i, u: x.at[i].subtract(u)),
    ("scatter_divide", "f6 p3", lambda x, u: x.at[np.array([4, 0, 2])].divide(u)),
    ("scatter_power", "p6", lambda x: x.at[np.array([4, 0, 2])].power(2)),
    ("scatter_apply", "f6", lambda x: x.at[np.array([4, 0, 2])].apply(jnp.sin)),
    ("scatter_drop", "f6 s4 f4", lambda x, i, u: x.at[i].add(u, mode="drop")),
    ("scatter_clip", "f6 s4 f4", lambda x, i, u: x.at[i].add(u, mode="clip")),
    ("scatter_slice", "f6,5 f2,5 ", lambda x, u: x.at[1:5:2].set(u)),
    ("scatter_pairs", "f6,5 i4 j4 f4", lambda x, i, j, u: x.at[i, j].add(u)),
    ("scatter_window", "f6,5 f2,2", lambda x, u: x.at[1:3, 2:4].multiply(u)),
    ("scatter_int", "s6 j4 s4", lambda x, i, u: x.at[i].add(u)),
    ("scatter_batched", "f3,6 j3,2 f3,2",
     lambda x, i, u: jax.vmap(lambda a, b, c: a.at[b].add(c))(x, i, u)),
    ("scatter_scalar", "f6,5 j f", lambda x, i, u: x.at[i, 2].set(u)),
    ("composite", "f4", lambda x: lax.composite(lambda y: jnp.sin(y) + 1, "my.composite")(x)),
    ("reduce_and_broadcast", "f3,4", lambda x: x / lax.reduce_max(x, (1,))[:, None]),
    ("rng_bit_generator", "w4", lambda k: lax.rng_bit_generator(
        k, (5,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)[1]),
    ("rng_philox", "w4", lambda k: lax.rng_bit_generator(
        k, (5,), algorithm=lax.RandomAlgorithm.RNG_PHILOX)),
    ("platform_dependent", "f4", lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)),
    ("associative_scan", "f8,2", lambda x: lax.associative_scan(lambda a, b: a * b + b, x)),
    ("custom_root", "p", lambda a: lax.custom_root(
        lambda x: x**2 - a, a,
        lambda f, x: lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), x),
        lambda g, y: y / g(1.0))),
    ("custom_linear_solve", "m3,3 f3", lambda a, b: lax.custom_linear_solve(
        lambda x: a @ x, b, lambda _, y: jnp.linalg.solve(a, y), symmetric=True), 4096),
]  # fmt: skip

CASES = named("lax", lax, SHORT) | lines("lax", ROWS)
