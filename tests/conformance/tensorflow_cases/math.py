"""tf.math, tf.bitwise, tf.complex numbers and reductions."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import lines, named

WORDS = {
    "abs acosh_ angle argmax argmin asinh atan ceil conj cos cosh cumprod cumsum "
    "cumulative_logsumexp digamma_ erf erfc exp expm1 floor imag invert_permutation_ is_finite "
    "is_inf is_nan l2_normalize "
    "log_sigmoid negative real reduce_all_ reduce_euclidean_norm reduce_logsumexp reduce_max "
    "reduce_mean reduce_min reduce_prod reduce_std reduce_sum reduce_variance rint round sigmoid "
    "sign sin sinh softplus softsign square tan tanh nextafter_ zero_fraction": "f3,4",
    "acos asin atanh erfinv erfcinv_": "u3,4",
    "ndtri erfcinv": "q3,4",
    "digamma lgamma log log1p reciprocal reciprocal_no_nan rsqrt sqrt bessel_i0 bessel_i0e "
    "bessel_i1 bessel_i1e": "p3,4",
    "acosh": "g3,4",
    "add subtract multiply maximum minimum squared_difference atan2 floordiv floormod mod_ divide "
    "divide_no_nan multiply_no_nan truediv equal not_equal greater greater_equal less less_equal "
    "nextafter approximate_equal logical_xor_": "f2,3 f2,3",
    "add_n_ pow xlog1py xlogy igamma igammac zeta_": "p2,3 p2,3",
    "betainc": "p4 p4 q4",
    "logical_and logical_or logical_xor": "b2,3 b2,3",
    "logical_not reduce_any reduce_all count_nonzero": "b2,3",
}
SPECIAL = {
    "dawsn expint fresnel_cos fresnel_sin spence bessel_j0 bessel_j1 bessel_k0 bessel_k0e "
    "bessel_k1 bessel_k1e bessel_y0 bessel_y1": "p3,4",
}
BITS = {
    "bitwise_and bitwise_or bitwise_xor": "i2,3 i2,3",
    "left_shift right_shift": "i2,3 j2,3",
    "invert": "i2,3",
}

ROWS = [
    ("accumulate_n", "f3 f3 f3", lambda *x: tf.math.accumulate_n(list(x))),
    ("add_n", "f3 f3 f3", lambda *x: tf.add_n(list(x))),
    ("argmax_axis", "f3,4", lambda x: tf.argmax(x, axis=-1, output_type=tf.int32)),
    ("bincount", "i20", lambda i: tf.math.bincount(i, minlength=9, maxlength=9)),
    ("bincount_weights", "i9 f9", lambda i, w: tf.math.bincount(i, w, minlength=8, maxlength=8)),
    ("bincount_rows", "i3,9", lambda i: tf.math.bincount(i, minlength=8, maxlength=8, axis=-1)),
    ("ceil_to_int", "f5", lambda x: tf.cast(tf.math.ceil(x), tf.int32)),
    ("clip_by_value", "f3,4", lambda x: tf.clip_by_value(x, -0.5, 0.5)),
    ("clip_by_norm", "f3,4", lambda x: tf.clip_by_norm(x, 1.0, axes=[1])),
    ("clip_by_global_norm", "f3 f4", lambda a, b: tf.clip_by_global_norm([a, b], 1.0)),
    ("complex", "f3 f3", tf.complex),
    ("complex_product", "c3 c3", lambda a, b: a * tf.math.conj(b) + tf.exp(a)),
    ("complex_abs", "c3,4", lambda a: tf.abs(a) + tf.math.angle(a)),
    ("complex_norm", "f3 f3", lambda a, b: tf.math.real(tf.sqrt(tf.complex(a, b)))),
    ("confusion_matrix", "i9 i9", lambda a, b: tf.math.confusion_matrix(a, b, num_classes=8)),
    ("cumprod_options", "f3,4", lambda x: tf.math.cumprod(x, 1, exclusive=True, reverse=True)),
    ("cumsum_options", "f3,4", lambda x: tf.cumsum(x, axis=1, exclusive=True, reverse=True)),
    ("cross", "f5,3 f5,3", tf.linalg.cross),
    ("einsum_attention", "f2,3,4 f2,5,4", lambda q, k: tf.einsum("bqd,bkd->bqk", q, k)),
    ("einsum_ellipsis", "f2,3,4 f4,5", lambda a, b: tf.einsum("...i,ij->...j", a, b)),
    ("einsum_trace", "f2,4,4", lambda a: tf.einsum("bii->b", a)),
    ("floordiv_ints", "s2,3 x2,3", lambda a, b: (a // b, a % b, tf.truncatediv(a, b))),
    ("in_top_k", "i4 f4,8", lambda t, p: tf.math.in_top_k(t, p, 3)),
    ("is_non_decreasing", "o6", lambda x: tf.math.is_non_decreasing(x)),
    ("is_strictly_increasing", "f6", lambda x: tf.math.is_strictly_increasing(x)),
    ("lbeta", "p3,4", tf.math.lbeta),
    ("log_softmax", "f3,4", lambda x: tf.math.log_softmax(x, axis=0)),
    ("matmul_transposed", "f2,4,3 f2,4,5", lambda a, b: tf.matmul(a, b, transpose_a=True)),
    ("matmul_broadcast", "f2,1,4,3 f5,3,2", tf.matmul),
    ("polygamma", "p3", lambda x: tf.math.polygamma(tf.ones_like(x), x)),
    ("polyval", "f3 f3 f3", lambda a, b, x: tf.math.polyval([a, b, a], x)),
    ("pow_int", "s3", lambda x: x**3),
    ("range_of_values", "", lambda: tf.range(2.0, 8.0, 0.5)),
    ("reduce_keepdims", "f2,3,4", lambda x: tf.reduce_mean(x, [0, 2], keepdims=True)),
    ("reduce_any_axis", "b3,4", lambda x: tf.reduce_any(x, axis=1)),
    ("round_half", "s5", lambda x: tf.round(tf.cast(x, tf.float32) / 2)),
    ("segment_sum", "f6,2", lambda x: tf.math.segment_sum(x, [0, 0, 1, 1, 1, 2])),
    ("segment_mean", "f6,2", lambda x: tf.math.segment_mean(x, tf.constant([0, 0, 1, 3, 3, 3]))),
    ("segment_max", "f6,2", lambda x: tf.math.segment_max(x, tf.constant([0, 0, 1, 2, 2, 2]))),
    ("unsorted_segment_sum", "f6,2 j6", lambda x, i: tf.math.unsorted_segment_sum(x, i, 3)),
    ("unsorted_segment_mean", "f6,2 j6", lambda x, i: tf.math.unsorted_segment_mean(x, i, 3)),
    ("unsorted_segment_max", "f6,2 j6", lambda x, i: tf.math.unsorted_segment_max(x, i, 3)),
    ("unsorted_segment_prod", "f6,2 j6", lambda x, i: tf.math.unsorted_segment_prod(x, i, 3)),
    ("unsorted_segment_sqrt_n", "f6 j6", lambda x, i: tf.math.unsorted_segment_sqrt_n(x, i, 3)),
    ("sobol", "", lambda: tf.math.sobol_sample(2, 8)),
    ("scalar_mul", "f f3", tf.math.scalar_mul),
    ("sin_of_int", "i3", lambda x: tf.sin(tf.cast(x, tf.float32))),
    ("softmax_axis", "f3,4,2", lambda x: tf.nn.softmax(x, axis=1)),
    ("smooth_l1", "f5 f5", lambda a, b: tf.where(abs(a - b) < 1, (a - b) ** 2 / 2, abs(a - b))),
    ("tensordot", "f2,3,4 f4,3,5", lambda a, b: tf.tensordot(a, b, [[1, 2], [1, 0]])),
    ("tensordot_axes", "f2,3,4 f3,4,5", lambda a, b: tf.tensordot(a, b, axes=2)),
    ("top_k", "f3,6", lambda x: tf.math.top_k(x, k=2)),
    ("top_k_of_traced", "f3,6", lambda x: tf.math.top_k(x, k=tf.shape(x)[1] // 2).values),
    ("approx_max_k", "f3,16", lambda x: tf.math.approx_max_k(x, k=4)[0]),
    ("trapezoid", "f8 o8", lambda y, x: tf.reduce_sum((y[1:] + y[:-1]) * (x[1:] - x[:-1])) / 2),
    ("truncatemod", "s4 x4", lambda a, b: tf.truncatemod(a, b)),
    ("zeta", "g4 p4", lambda x, q: tf.math.zeta(x, q)),
    ("ndtri_and_back", "q5", lambda p: (1 + tf.math.erf(tf.math.ndtri(p) / 2**0.5)) / 2),
    ("logsumexp_axis", "f2,3,4", lambda x: tf.reduce_logsumexp(x, axis=[0, 2], keepdims=True)),
    ("standardized", "f4,5", lambda x: (x - tf.reduce_mean(x, 0)) / tf.math.reduce_std(x, 0)),
    ("moments", "f4,5,3", lambda x: tf.nn.moments(x, [0, 1])),
    ("weighted_moments", "f4,5 p4,5", lambda x, w: tf.nn.weighted_moments(x, [0], w)),
    ("histogram_fixed_width", "f20", lambda x: tf.histogram_fixed_width(x, [-2.0, 2.0], nbins=5)),
    ("histogram_bins", "f20", lambda x: tf.histogram_fixed_width_bins(x, [-2.0, 2.0], nbins=5)),
    ("population_count", "w4", lambda x: tf.raw_ops.PopulationCount(x=tf.bitcast(x, tf.int32))),
    ("igamma_by_a", "p4", lambda a: tf.math.igamma(a, a + 0.5), 256),
    ("lerp", "f4 f4 q", lambda a, b, t: a + t * (b - a)),
]  # fmt: skip

CASES = {
    **named("math", tf.math, WORDS),
    **named("special", tf.math.special, SPECIAL),
    **named("bitwise", tf.bitwise, BITS),
    **lines("math", ROWS),
}
