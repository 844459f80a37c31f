"""A sample of keras.ops as functions of tensors."""

from __future__ import annotations

import numpy as np
from keras import ops as K

from tests.conformance.keras_cases.arguments import case, floats, integers, positive

X, SQUARE = floats(3, 4), floats(4, 4)
DEFINITE = (SQUARE @ SQUARE.T + 2 * np.eye(4)).astype(np.float32)
IMAGE = floats(2, 6, 6, 2)
UNARY = """arctan arcsinh tanh sinh softplus logsumexp erf expm1 relu6 gelu sparsemax log_softmax
sort argsort argmax std var median cumsum cumprod nanmean ravel flip fliplr rot90 trapezoid
square sinc""".split()
OPS = {f"ops.{n}": case(lambda n=n: getattr(K, n), X) for n in UNARY} | {
    f"ops.{name}": case(lambda f=f: f, *args, **options)
    for name, f, args, options in (
        ("einsum", lambda x, y: K.einsum("ij,kj->ik", x, y), (X, X * 0.5), {}),
        ("matmul", K.matmul, (X, SQUARE), {}),
        ("tensordot", lambda x, y: K.tensordot(x, y, axes=1), (X, SQUARE), {}),
        ("outer", K.outer, ((3,), (4,)), {}),
        ("cross", K.cross, ((2, 3), floats(2, 3) * 0.4 + 0.1), {}),
        ("where", lambda x: K.where(x > 0, x, -x * 2), (X,), {}),
        ("take", lambda x, i: K.take(x, i, axis=1), (X, integers(4, 2)), {}),
        ("take_along_axis", lambda x, i: K.take_along_axis(x, i, 1), (X, integers(4, 3, 2)), {}),
        ("scatter", lambda i, x: K.scatter(i, x, (6, 4)), (integers(6, 3, 1), X), {}),
        ("scatter_update", K.scatter_update, (SQUARE, np.array([[0], [2], [3]], np.int32), X), {}),
        ("slice", lambda x: K.slice(x, (1, 0), (2, 3)), (X,), {}),
        ("slice_update", lambda x, y: K.slice_update(x, (1, 0), y), (SQUARE, X), {}),
        ("top_k", lambda x: K.top_k(x, 2), (X,), {}),
        ("in_top_k", lambda t, p: K.in_top_k(t, p, 2), (integers(4, 3), X), {}),
        ("segment_sum", lambda x, i: K.segment_sum(x, i, 3), (X, np.array([0, 2, 2], np.int32)), {}),
        ("segment_max", lambda x, i: K.segment_max(x, i, 3), (X, np.array([0, 1, 2], np.int32)), {}),
        ("one_hot", lambda i: K.one_hot(i, 5), (integers(5, 3),), {}),
        ("bincount", lambda i: K.bincount(i, minlength=6), (integers(5, 8),), {"vmap": False}),
        ("searchsorted", K.searchsorted, (np.arange(5, dtype=np.float32), (4,)), {}),
        ("digitize", lambda x: K.digitize(x, np.array([-0.5, 0.1, 1.0])), (X,), {}),
        ("histogram", lambda x: K.histogram(x, bins=4, range=(-2, 2)), (X,), {}),
        ("quantile", lambda x: K.quantile(x, 0.3, axis=1), (X,), {}),
        ("norm", lambda x: K.norm(x, axis=1), (X,), {}),
        ("normalize", lambda x: K.normalize(x, axis=1), (X,), {}),
        ("cholesky", K.cholesky, (DEFINITE,), {}),
        ("inv", K.inv, (DEFINITE,), {}),
        ("det", K.det, (DEFINITE,), {}),
        ("slogdet", K.slogdet, (DEFINITE,), {}),
        ("solve", K.solve, (DEFINITE, SQUARE), {}),
        ("solve_triangular", lambda a, b: K.solve_triangular(a, b, lower=True),
         (DEFINITE, SQUARE), {}),
        ("qr", K.qr, (SQUARE,), {}),
        ("svd", lambda x: K.svd(x, compute_uv=False), (X,), {}),
        ("eigh", lambda x: K.eigh(x)[0], (DEFINITE,), {}),
        ("lstsq", K.lstsq, (floats(5, 3), (5, 2)), {}),
        ("fft", K.fft, ((X, X * 0.3),), {}),
        ("rfft", K.rfft, (X,), {}),
        ("irfft", K.irfft, ((X, X * 0.3),), {}),
        ("stft", lambda x: K.stft(x, 8, 4, 8), ((2, 32),), {}),
        ("istft", lambda x, y: K.istft((x, y), 8, 4, 8), ((2, 9, 5), floats(2, 9, 5) * 0.2), {}),
        ("conv", lambda x, k: K.conv(x, k, 1, "same"), (IMAGE, (3, 3, 2, 4)), {}),
        ("depthwise_conv", lambda x, k: K.depthwise_conv(x, k), (IMAGE, (3, 3, 2, 2)), {}),
        ("conv_transpose", lambda x, k: K.conv_transpose(x, k, 2), (IMAGE, (3, 3, 4, 2)), {}),
        ("max_pool", lambda x: K.max_pool(x, 2), (IMAGE,), {}),
        ("average_pool", lambda x: K.average_pool(x, 2, padding="same"), (IMAGE,), {}),
        ("image.resize", lambda x: K.image.resize(x, (4, 9)), (IMAGE,), {}),
        ("image.affine_transform", lambda x, t: K.image.affine_transform(x, t),
         (IMAGE, np.tile(np.array([[1, 0.1, 0.2, -0.1, 0.9, 0.3, 0, 0]], np.float32), (2, 1))), {}),
        ("image.map_coordinates", lambda x, c: K.image.map_coordinates(x, c, 1),
         (SQUARE, positive(2, 5) * 1.5), {}),
        ("image.extract_patches", lambda x: K.image.extract_patches(x, 3), (IMAGE,), {}),
        ("image.rgb_to_hsv", lambda x: K.image.rgb_to_hsv(x), (positive(2, 3, 3, 3) / 2,), {}),
        ("image.gaussian_blur", lambda x: K.image.gaussian_blur(x), (IMAGE,), {}),
        ("binary_crossentropy", K.binary_crossentropy, (positive(3, 4) / 2, positive(3, 4) / 3), {}),
        ("categorical_crossentropy", lambda t, x: K.categorical_crossentropy(t, x, True),
         (positive(3, 4), X), {}),
        ("sparse_categorical_crossentropy",
         lambda t, x: K.sparse_categorical_crossentropy(t, x, True), (integers(4, 3), X), {}),
        ("ctc_loss", lambda t, x: K.ctc_loss(t, x, np.array([2, 2]), np.array([5, 6])),
         (1 + integers(3, 2, 2), (2, 6, 4)), {"compiled": True}),
        ("dot_product_attention", K.dot_product_attention,
         ((2, 5, 2, 4), floats(2, 5, 2, 4) * 0.3, floats(2, 5, 2, 4) * 0.7), {}),
        ("layer_normalization", lambda x: K.layer_normalization(x, axis=-1), (X,), {}),
        ("moments", lambda x: K.moments(x, 1), (X,), {}),
        ("cond", lambda x: K.cond(K.sum(x) > 0, lambda: x * 2, lambda: x - 1), (X,), {}),
        ("switch", lambda i, x: K.switch(i, [lambda x: x, K.sin, K.cos], x),
         (np.int32(1), X), {"compiled": True}),
        ("while_loop", lambda x: K.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, K.sin(x)), (0, x))[1], (X,), {}),
        ("fori_loop", lambda x: K.fori_loop(0, 3, lambda i, x: K.sin(x), x), (X,), {}),
        ("scan", lambda x: K.scan(lambda c, x: (c + x, c * x), x[0], x), (X,), {}),
        ("associative_scan", lambda x: K.associative_scan(K.add, x), (X,), {}),
        ("map", lambda x: K.map(lambda row: K.sum(row) * row, x), (X,), {}),
        ("vectorized_map", lambda x: K.vectorized_map(lambda row: K.sum(row) * row, x), (X,),
         {"compiled": True}),
        ("unfold", lambda x: K.unfold(K.transpose(x, (0, 3, 1, 2)), 3), (IMAGE,), {}),
        ("kron", K.kron, (X, SQUARE), {}),
        ("diff", K.diff, (X,), {}),
        ("pad", lambda x: K.pad(x, ((1, 2), (0, 1)), "reflect"), (X,), {}),
        ("roll", lambda x: K.roll(x, 2, 1), (X,), {}),
        ("repeat", lambda x: K.repeat(x, 2, axis=0), (X,), {}),
        ("tril", K.tril, (SQUARE,), {}),
        ("diagonal", K.diagonal, (SQUARE,), {}),
        ("meshgrid", K.meshgrid, ((3,), (4,)), {}),
        ("clip", lambda x: K.clip(x, -0.5, 0.5), (X,), {}),
        ("logaddexp", K.logaddexp, (X, X * 0.5), {}),
        ("arctan2", K.arctan2, (X, X * 0.5 + 0.3), {}),
        ("power", K.power, (positive(3, 4), X), {}),
        ("floor_divide", K.floor_divide, (X, positive(3, 4)), {}),
        ("bitwise_xor", K.bitwise_xor, (integers(9, 5), integers(7, 5)), {}),
        ("cdist", K.cdist, (X, floats(2, 4)), {}),
        ("erfinv", K.erfinv, (X * 0.5,), {}),
        ("count_nonzero", lambda x: K.count_nonzero(x > 0, axis=1), (X,), {}),
    )
}  # fmt: skip

CASES = OPS
