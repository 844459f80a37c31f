"""tf.image, tf.signal, tf.linalg, tf.random and dtypes."""

import tensorflow as tf

from tests.conformance.stablehlo_cases.arguments import Case, lines

LINALG = [
    ("adjoint", "c3,4", tf.linalg.adjoint),
    ("band_part", "f4,5", lambda x: tf.linalg.band_part(x, -1, 1)),
    ("cholesky", "m3,3", tf.linalg.cholesky, 256),
    ("cholesky_solve", "m3,3 f3,2", lambda a, b: tf.linalg.cholesky_solve(
        tf.linalg.cholesky(a), b), 1024),
    ("det", "f3,3", tf.linalg.det, 256),
    ("diag_part", "f4,4", tf.linalg.diag_part),
    ("eigh", "m3,3", lambda a: tf.linalg.eigvalsh(a), 1024),
    ("eigh_reconstructed", "m3,3", lambda a: (lambda w, v: (v * w**2) @ tf.transpose(v))(
        *tf.linalg.eigh(a)), 4096),
    ("expm", "f3,3", lambda a: tf.linalg.expm(a * 0.3), 1024),
    ("global_norm", "f3 f4", lambda a, b: tf.linalg.global_norm([a, b])),
    ("inv", "m3,3", tf.linalg.inv, 1024),
    ("logdet", "m3,3", tf.linalg.logdet, 1024),
    ("logm", "M3,3", tf.linalg.logm, 1024),
    ("lstsq", "f5,3 f5,2", lambda a, b: tf.linalg.lstsq(a, b), 65536),
    ("lstsq_regularized", "f5,3 f5,2", lambda a, b: tf.linalg.lstsq(a, b, 0.1), 65536),
    ("lu", "m3,3", lambda a: tf.linalg.lu(a)[0], 1024),
    ("lu_solve", "m3,3 f3,1", lambda a, b: tf.linalg.lu_solve(*tf.linalg.lu(a), b), 4096),
    ("matvec", "f2,3,4 f2,4", tf.linalg.matvec),
    ("norm_fro", "f3,4", lambda x: tf.norm(x, axis=[0, 1])),
    ("norm_one", "f3,4", lambda x: tf.norm(x, ord=1, axis=1)),
    ("norm_inf", "f3,4", lambda x: tf.norm(x, ord=float("inf"), axis=0)),
    ("normalize", "f3,4", lambda x: tf.linalg.normalize(x, axis=1)[0]),
    ("pinv", "f4,3", tf.linalg.pinv, 65536),
    ("qr", "f4,3", lambda a: abs(tf.linalg.qr(a).r), 4096),
    ("slogdet", "f3,3", tf.linalg.slogdet, 1024),
    ("solve", "m3,3 f3,2", tf.linalg.solve, 1024),
    ("sqrtm", "m3,3", tf.linalg.sqrtm, 4096),
    ("svd_values", "f4,3", lambda a: tf.linalg.svd(a, compute_uv=False), 4096),
    ("svd_reconstructed", "f4,3", lambda a: (lambda s, u, v: tf.matmul(
        u * s**2, v, transpose_b=True))(*tf.linalg.svd(a)), 65536),
    ("tensor_diag", "f3", tf.linalg.tensor_diag),
    ("tensor_diag_part", "f3,3", tf.linalg.tensor_diag_part),
    ("trace", "f2,3,3", tf.linalg.trace),
    ("triangular_solve", "m3,3 f3,2", lambda a, b: tf.linalg.triangular_solve(
        tf.linalg.band_part(a, -1, 0), b), 1024),
    ("tridiagonal_solve", "f3,5 f5", lambda d, b: tf.linalg.tridiagonal_solve(
        d + tf.constant([[0.0], [6.0], [0.0]]), b, diagonals_format="compact"), 1024),
    ("tridiagonal_matmul", "f3,5 f5,2", lambda d, b: tf.linalg.tridiagonal_matmul(d, b)),
    ("banded_triangular_solve", "g2,4 f4,1", lambda b, r: tf.linalg.banded_triangular_solve(
        b, r), 256),
    ("operator_full", "m3,3 f3", lambda a, b: tf.linalg.LinearOperatorFullMatrix(
        a, is_positive_definite=True, is_self_adjoint=True).solvevec(b), 1024),
    ("operator_kronecker", "f2,2 f3,3 f6", lambda a, b, x: tf.linalg.LinearOperatorKronecker([
        tf.linalg.LinearOperatorFullMatrix(a), tf.linalg.LinearOperatorFullMatrix(b)]).matvec(x)),
    ("operator_low_rank", "f4,2 p4", lambda u, d: tf.linalg.LinearOperatorLowRankUpdate(
        tf.linalg.LinearOperatorDiag(d, is_positive_definite=True), u).log_abs_determinant(), 1024),
    ("mahalanobis", "m3,3 f5,3", lambda c, x: tf.reduce_sum(tf.square(
        tf.linalg.triangular_solve(tf.linalg.cholesky(c), tf.transpose(x))), 0), 1024),
    ("gaussian_log_density", "m3,3 f3", lambda c, x: -0.5 * (tf.linalg.logdet(c) + tf.tensordot(
        x, tf.linalg.cholesky_solve(tf.linalg.cholesky(c), x[:, None])[:, 0], 1)), 1024),
    ("complex_solve", "M3,3 c3,1", tf.linalg.solve, 1024),
]  # fmt: skip
SIGNAL = [
    ("dct", "f3,8", lambda x: tf.signal.dct(x, norm="ortho"), 256),
    ("dct_types", "f8", lambda x: (tf.signal.dct(x, 1), tf.signal.dct(x, 3), tf.signal.dct(x, 4))),
    ("idct", "f3,8", tf.signal.idct, 256),
    ("fft", "c3,8", tf.signal.fft, 256),
    ("fft2d", "c4,6", tf.signal.fft2d, 256),
    ("fft3d", "c2,4,4", tf.signal.fft3d, 256),
    ("ifft", "c8", tf.signal.ifft, 256),
    ("rfft", "f3,8", tf.signal.rfft, 256),
    ("rfft_length", "f3,8", lambda x: tf.signal.rfft(x, [6]), 256),
    ("rfft2d", "f4,6", tf.signal.rfft2d, 256),
    ("irfft", "c3,5", tf.signal.irfft, 256),
    ("irfft2d", "c4,4", tf.signal.irfft2d, 256),
    ("fftshift", "f5,4", tf.signal.fftshift),
    ("ifftshift", "f5,4", tf.signal.ifftshift),
    ("frame", "f20", lambda x: tf.signal.frame(x, 6, 3)),
    ("frame_padded", "f20", lambda x: tf.signal.frame(x, 6, 4, pad_end=True, pad_value=1.0)),
    ("overlap_and_add", "f4,6", lambda x: tf.signal.overlap_and_add(x, 3)),
    ("stft", "f64", lambda x: abs(tf.signal.stft(x, 16, 8)), 256),
    ("istft", "c7,9", lambda x: tf.signal.inverse_stft(x, 16, 8), 256),
    ("istft_window", "c7,9", lambda x: tf.signal.inverse_stft(
        x, 16, 8, window_fn=tf.signal.inverse_stft_window_fn(8)), 256),
    ("mel", "p7,9", lambda s: s @ tf.signal.linear_to_mel_weight_matrix(4, 9, 8000, 125.0, 3800.0)),
    ("mfcc", "f5,8", tf.signal.mfccs_from_log_mel_spectrograms, 256),
    ("windows", "f16", lambda x: x * tf.signal.hann_window(16) + tf.signal.hamming_window(16)
     + tf.signal.kaiser_window(16) + tf.signal.vorbis_window(16)),
    ("mdct", "f64", lambda x: tf.signal.mdct(x, 16), 256),
    ("inverse_mdct", "f5,8", lambda x: tf.signal.inverse_mdct(x), 256),
    ("convolve_by_fft", "f8 f8", lambda a, b: tf.signal.irfft(
        tf.signal.rfft(a, [16]) * tf.signal.rfft(b, [16]), [16]), 512),
]  # fmt: skip
IMAGE = [
    ("adjust_brightness", "f4,4,3", lambda x: tf.image.adjust_brightness(x, 0.1)),
    ("adjust_contrast", "f2,4,4,3", lambda x: tf.image.adjust_contrast(x, 1.5)),
    ("adjust_gamma", "q4,4,3", lambda x: tf.image.adjust_gamma(x, 0.7)),
    ("adjust_hue", "q4,4,3", lambda x: tf.image.adjust_hue(x, 0.1)),
    ("adjust_saturation", "q4,4,3", lambda x: tf.image.adjust_saturation(x, 0.6)),
    ("central_crop", "f8,8,3", lambda x: tf.image.central_crop(x, 0.5)),
    ("convert_dtype", "y4,4,3", lambda x: tf.image.convert_image_dtype(x, tf.float32)),
    ("convert_dtype_back", "q4,4,3", lambda x: tf.image.convert_image_dtype(x, tf.uint8)),
    ("crop_and_resize", "f2,6,6,2", lambda x: tf.image.crop_and_resize(
        x, [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 0.5]], [0, 1], [3, 4])),
    ("crop_to_box", "f8,8,3", lambda x: tf.image.crop_to_bounding_box(x, 1, 2, 4, 5)),
    ("draw_boxes", "q1,8,8,3", lambda x: tf.image.draw_bounding_boxes(
        x, [[[0.1, 0.2, 0.8, 0.9]]], [[1.0, 0.0, 0.0]])),
    ("extract_glimpse", "f1,8,8,1", lambda x: tf.image.extract_glimpse(
        x, [4, 4], [[0.0, 0.0]], noise="zero")),
    ("extract_patches", "f1,6,6,2", lambda x: tf.image.extract_patches(
        x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME")),
    ("flip", "f4,5,3", lambda x: tf.image.flip_left_right(tf.image.flip_up_down(x))),
    ("gaussian_pyramid", "f1,8,8,1", lambda x: tf.nn.conv2d(
        x, tf.constant([1.0, 4, 6, 4, 1])[:, None, None, None] / 16, 2, "SAME")),
    ("grayscale", "q4,4,3", tf.image.rgb_to_grayscale),
    ("grayscale_to_rgb", "q4,4,1", tf.image.grayscale_to_rgb),
    ("hsv", "q4,4,3", tf.image.rgb_to_hsv),
    ("hsv_to_rgb", "q4,4,3", tf.image.hsv_to_rgb),
    ("yiq", "q4,4,3", tf.image.rgb_to_yiq),
    ("yuv", "q4,4,3", lambda x: tf.image.yuv_to_rgb(tf.image.rgb_to_yuv(x))),
    ("gradients", "f1,5,5,2", tf.image.image_gradients),
    ("sobel", "f1,5,5,2", tf.image.sobel_edges),
    ("nms", "o6,4 q6", lambda b, s: tf.image.non_max_suppression_padded(
        b, s, 4, 0.5, pad_to_max_output_size=True)),
    ("nms_static", "", lambda: tf.image.non_max_suppression(
        [[0.0, 0, 1, 1], [0, 0, 1, 0.9], [0.5, 0.5, 2, 2]], [0.9, 0.8, 0.7], 3)),
    ("combined_nms", "o1,6,1,4 q1,6,2", lambda b, s: tf.image.combined_non_max_suppression(
        b, s, 3, 4)[:2]),
    ("pad_to_box", "f4,4,3", lambda x: tf.image.pad_to_bounding_box(x, 1, 2, 8, 9)),
    ("per_image_standardization", "f2,4,4,3", tf.image.per_image_standardization, 256),
    ("psnr", "q4,4,3 q4,4,3", lambda a, b: tf.image.psnr(a, b, 1.0)),
    ("ssim", "q16,16,1 q16,16,1", lambda a, b: tf.image.ssim(a, b, 1.0), 4096),
    ("total_variation", "f2,4,4,3", tf.image.total_variation, 256),
    ("resize", "f1,4,5,2", lambda x: tf.image.resize(x, [7, 8])),
    ("resize_nearest", "f1,4,5,2", lambda x: tf.image.resize(x, [7, 8], "nearest")),
    ("resize_bicubic", "f1,4,5,2", lambda x: tf.image.resize(x, [7, 8], "bicubic"), 256),
    ("resize_area", "f1,4,6,2", lambda x: tf.image.resize(x, [2, 3], "area")),
    ("resize_lanczos", "f1,8,8,2", lambda x: tf.image.resize(x, [5, 5], "lanczos3"), 256),
    ("resize_gaussian", "f1,8,8,2", lambda x: tf.image.resize(x, [5, 5], "gaussian"), 256),
    ("resize_antialias", "f1,8,8,2", lambda x: tf.image.resize(x, [3, 3], antialias=True), 256),
    ("resize_keeping_ratio", "f4,8,1", lambda x: tf.image.resize(
        x, [6, 6], preserve_aspect_ratio=True)),
    ("resize_with_pad", "f4,8,1", lambda x: tf.image.resize_with_pad(x, 6, 6)),
    ("resize_crop_or_pad", "f4,8,1", lambda x: tf.image.resize_with_crop_or_pad(x, 6, 6)),
    ("resize_half_pixel_off", "f1,4,4,1", lambda x: tf.compat.v1.image.resize_bilinear(x, [6, 6])),
    ("resize_align_corners", "f1,4,4,1", lambda x: tf.compat.v1.image.resize_bilinear(
        x, [6, 6], align_corners=True)),
    ("resize_uint8", "y1,4,4,3", lambda x: tf.image.resize(x, [6, 6])),
    ("rot90", "f4,5,3", lambda x: tf.image.rot90(x, 3)),
    ("transpose", "f4,5,3", tf.image.transpose),
    ("preprocess", "y8,8,3", lambda x: (tf.image.resize(tf.cast(x, tf.float32) / 255.0, [4, 4])
                                        - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]),
    ("cutout", "f8,8,3", lambda x: x * tf.pad(tf.zeros([3, 3, 1]), [[2, 3], [1, 4], [0, 0]],
                                              constant_values=1.0)),
    ("stateless_flip", "f4,4,3", lambda x: tf.image.stateless_random_flip_left_right(x, [1, 2])),
    ("stateless_brightness", "f4,4,3", lambda x: tf.image.stateless_random_brightness(
        x, 0.2, [1, 2])),
    ("stateless_contrast", "f4,4,3", lambda x: tf.image.stateless_random_contrast(
        x, 0.2, 0.5, [1, 2])),
    ("stateless_saturation", "q4,4,3", lambda x: tf.image.stateless_random_saturation(
        x, 0.2, 0.5, [1, 2])),
    ("stateless_hue", "q4,4,3", lambda x: tf.image.stateless_random_hue(x, 0.2, [1, 2])),
    ("stateless_crop", "f6,6,3", lambda x: tf.image.stateless_random_crop(x, [4, 4, 3], [1, 2])),
    ("stateless_jpeg_free", "f4,4,3", lambda x: tf.clip_by_value(x, 0.0, 1.0)),
]  # fmt: skip
SEED = [7, 11]
RANDOM = [
    ("uniform", "", lambda: tf.random.stateless_uniform([3, 4], SEED, -1.0, 2.0)),
    ("normal", "", lambda: tf.random.stateless_normal([3, 4], SEED, 1.0, 2.0)),
    ("truncated_normal", "", lambda: tf.random.stateless_truncated_normal([3, 4], SEED)),
    ("uniform_int", "", lambda: tf.random.stateless_uniform([9], SEED, 3, 90, tf.int32)),
    ("full_int", "", lambda: tf.random.stateless_uniform([9], SEED, None, None, tf.int32)),
    ("seed_traced", "x2", lambda s: tf.random.stateless_uniform([3], s)),
    ("categorical", "f3,4", lambda x: tf.random.stateless_categorical(x, 5, SEED)),
    ("gamma", "p3", lambda a: tf.random.stateless_gamma([4, 3], SEED, a), 256),
    ("poisson", "p3", lambda a: tf.random.stateless_poisson([4, 3], SEED, a * 4)),
    ("binomial", "q3", lambda p: tf.random.stateless_binomial([4, 3], SEED, 10.0, p)),
    ("parameterized_truncated_normal", "f3", lambda m: tf.random.
     stateless_parameterized_truncated_normal([4, 3], SEED, m, 1.0, m - 1, m + 1)),
    ("shuffle", "f8", lambda x: tf.random.experimental.stateless_shuffle(x, SEED)),
    ("fold_in", "", lambda: tf.random.stateless_uniform(
        [2], tf.random.experimental.stateless_fold_in(SEED, 3))),
    ("split", "", lambda: tf.random.split(SEED, 3)),
    ("dropout", "f6", lambda x: tf.nn.experimental.stateless_dropout(x, 0.4, SEED)),
    ("threefry", "", lambda: tf.random.stateless_uniform([5], SEED, alg="auto_select")),
    ("philox", "", lambda: tf.random.stateless_normal([5], SEED, alg="philox")),
    ("shape_by_tensor", "f3,4", lambda x: x + tf.random.stateless_normal(tf.shape(x), SEED)),
    ("reparameterized", "f4 f4",
     lambda m, s: m + tf.exp(s) * tf.random.stateless_normal([4], SEED)),
    ("gumbel_softmax", "f3,4", lambda x: tf.nn.softmax((x - tf.math.log(-tf.math.log(
        tf.random.stateless_uniform([3, 4], SEED, 0.1, 0.9)))) / 0.5)),
    ("rademacher", "", lambda: 2 * tf.random.stateless_uniform([6], SEED, 0, 2, tf.int32) - 1),
]  # fmt: skip
DTYPES = [
    ("float64", "d3,4 d4,2", lambda a, b: tf.tanh(a @ b), 64, True),
    ("float64_narrowed", "d3", lambda a: tf.exp(a) * 2),
    ("float64_from_32", "f3", lambda a: tf.cast(a, tf.float64) * 3, 64, True),
    ("bfloat16_matmul", "h3,4 h4,2", lambda a, b: a @ b),
    ("bfloat16_softmax", "h3,4", lambda a: tf.nn.softmax(a)),
    ("bfloat16_mixed", "f3,4 f4,2", lambda a, b: tf.cast(
        tf.cast(a, tf.bfloat16) @ tf.cast(b, tf.bfloat16), tf.float32)),
    ("half_norm", "t3,4", lambda a: a / tf.norm(a, axis=-1, keepdims=True)),
    ("half_conv", "t1,5,5,2 t3,3,2,2", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), 256),
    ("half_to_float", "t4", lambda a: tf.cast(a, tf.float32) ** 2),
    ("int64_ops", "l4 l4", lambda a, b: (a * b + 3, a - b, tf.maximum(a, b))),
    ("int64_x64", "l4 l4",
     lambda a, b: tf.bitwise.left_shift(a, tf.constant(33, tf.int64)) + b, 64, True),
    ("int64_index", "f8,2 l3", lambda x, i: tf.gather(x, i)),
    ("int64_argmax", "f3,4", lambda x: tf.argmax(x, 1)),
    ("int8_clip", "s6", lambda x: tf.cast(tf.clip_by_value(x, -7, 7), tf.int8) * 3),
    ("int16_sum", "s6", lambda x: tf.reduce_sum(tf.cast(x, tf.int16))),
    ("uint8_arithmetic", "y6 y6", lambda a, b: (a + b, a * b, a // (b | 1))),
    ("uint8_to_float", "y4,4", lambda x: tf.cast(x, tf.float32) / 255),
    ("uint8_saturate", "f6", lambda x: tf.saturate_cast(x * 400, tf.uint8)),
    ("uint32_bits", "w4",
     lambda x: tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.ones_like(x)))),
    ("uint16", "s4", lambda x: tf.cast(tf.abs(x), tf.uint16) + 2),
    ("bool_ops", "b4 b4", lambda a, b: (a & b, a | b, a ^ b, ~a)),
    ("bool_sum", "b3,4", lambda a: tf.reduce_sum(tf.cast(a, tf.int32), axis=0)),
    ("bool_to_float", "b4 f4", lambda a, x: tf.cast(a, tf.float32) * x),
    ("complex64", "c3,3 c3,2", lambda a, b: tf.matmul(a, b, adjoint_a=True)),
    ("complex128", "z3 z3", lambda a, b: a * b + tf.exp(a), 64, True),
    ("complex_power", "c4", lambda a: a**2 + tf.sqrt(a) + tf.math.log(a)),
    ("complex_trig", "c4", lambda a: tf.sin(a) + tf.tanh(a)),
    ("complex_divide", "c4 c4", lambda a, b: a / b),
    ("complex_reduce", "c3,4", lambda a: tf.reduce_sum(a, 0) * tf.reduce_prod(a)),
    ("complex_cast", "c4", lambda a: tf.cast(tf.math.real(a), tf.complex64) + 1j),
    ("complex_is_real_loss", "c4", lambda a: tf.reduce_sum(tf.abs(a) ** 2)),
    ("int_division", "s4 x4", lambda a, b: a / b),
    ("float_floor", "f4 f4", lambda a, b: a // b),
    ("cast_round_trip", "f5", lambda x: tf.cast(tf.cast(x * 10, tf.int32), tf.float32)),
    ("infinities", "f4", lambda x: tf.where(x > 0, float("inf"), x) / 2),
    ("nan_mean", "n12", lambda x: tf.reduce_sum(tf.where(tf.math.is_nan(x), 0.0, x))),
    ("fake_quant", "f3,4 ", lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0)),
    ("fake_quant_channels", "f3,4", lambda x: tf.quantization.
     fake_quant_with_min_max_vars_per_channel(x, [-1.0] * 4, [1.0, 2.0, 1.0, 0.5])),
    ("quantize_and_dequantize", "f3,4", lambda x: tf.quantization.quantize_and_dequantize_v2(
        x, -1.0, 1.0, range_given=True)),
    ("quantize", "f3,4", lambda x: tf.quantization.dequantize(
        *tf.quantization.quantize(x, -2.0, 2.0, tf.quint8), mode="MIN_COMBINED")),
    ("quantize_scaled", "f3,4", lambda x: tf.quantization.dequantize(
        *tf.quantization.quantize(x, -2.0, 2.0, tf.qint8, mode="SCALED"), mode="SCALED")),
    ("int8_matmul", "s3,4 s4,2", lambda a, b: tf.matmul(
        tf.cast(a, tf.int8), tf.cast(b, tf.int8), output_type=tf.int32)),
]  # fmt: skip
CASES: dict[str, Case] = {
    **lines("linalg", LINALG),
    **lines("signal", SIGNAL),
    **lines("image", IMAGE),
    **lines("random", RANDOM),
    **lines("dtypes", DTYPES),
}
