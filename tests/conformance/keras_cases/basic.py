"""Core, merging, reshaping, activation, normalization and regularization layers."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers as L

from tests.conformance.keras_cases.arguments import case, floats, integers, mask

PAIR = [floats(2, 5, 4), floats(2, 5, 4) * 0.7 + 0.2]
X = (2, 6, 4)


def zeros(rate):
    """About ``rate`` of the outputs are 0."""
    return lambda out, *_: abs(float((np.asarray(out) == 0).mean()) - rate) < 0.1


def spread(std):
    """The noise has this standard deviation."""
    return lambda out, x: abs(float((np.asarray(out) - x).std()) - std) < 0.15 * std


def noisy(make, x, check=None):
    return case(make, x, train="drawn", check=check)


CORE = {
    "Dense": case(lambda: L.Dense(3, activation="relu"), X),
    "Dense.no_bias": case(lambda: L.Dense(3, use_bias=False, kernel_regularizer="l2"), X),
    "EinsumDense": case(lambda: L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"), X),
    "EinsumDense.heads": case(lambda: L.EinsumDense("abc,cde->abde", (None, 2, 3)), X),
    "Embedding": case(lambda: L.Embedding(7, 3), integers(7, 2, 5)),
    "Embedding.mask": case(
        lambda: keras.Sequential([L.Embedding(7, 3, mask_zero=True), L.LSTM(4)]),
        integers(7, 2, 5),
    ),
    "ReversibleEmbedding": case(lambda: L.ReversibleEmbedding(7, 3), integers(7, 2, 5)),
    "ReversibleEmbedding.reverse": case(
        lambda: L.ReversibleEmbedding(7, 4, tie_weights=False), X, kwargs={"reverse": True}
    ),
    "Identity": case(lambda: L.Identity(), X),
    "Lambda": case(lambda: L.Lambda(lambda x: x * 2 + 1), X),
    "Masking": case(
        lambda: keras.Sequential([L.Masking(0.0), L.SimpleRNN(3)]),
        floats(2, 6, 4) * mask(2, 6)[..., None],
    ),
    "Wrapper": case(lambda: Wrapped(L.Dense(3)), X),
    "InputLayer": case(lambda: keras.Sequential([L.InputLayer((6, 4)), L.Dense(2)]), X),
    "Pipeline": case(lambda: L.Pipeline([L.Rescaling(2.0), L.Rescaling(3.0, 1.0)]), X),
    "SpectralNormalization": case(lambda: L.SpectralNormalization(L.Dense(3)), (2, 4)),
    "SpectralNormalization.conv": case(
        lambda: L.SpectralNormalization(L.Conv2D(3, 2), power_iterations=2), (2, 5, 5, 2)
    ),
    "TimeDistributed": case(lambda: L.TimeDistributed(L.Dense(3)), X),
    "TimeDistributed.conv": case(lambda: L.TimeDistributed(L.Conv2D(2, 3)), (2, 3, 5, 5, 2)),
}


class Wrapped(L.Wrapper):
    def call(self, x):
        return self.layer(x) + 1


MERGING = {
    name: case(getattr(L, name), PAIR)
    for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
} | {
    "Concatenate.axis": case(lambda: L.Concatenate(axis=1), PAIR),
    "Dot": case(lambda: L.Dot(axes=(2, 2)), PAIR),
    "Dot.normalize": case(lambda: L.Dot(axes=-1, normalize=True), [PAIR[0][0], PAIR[1][0]]),
}

RESHAPING = {
    "Flatten": case(lambda: L.Flatten(), (2, 3, 4)),
    "Flatten.channels_first": case(lambda: L.Flatten("channels_first"), (2, 3, 4, 2)),
    "Permute": case(lambda: L.Permute((2, 1)), X),
    "RepeatVector": case(lambda: L.RepeatVector(3), (2, 4)),
    "Reshape": case(lambda: L.Reshape((3, -1)), X),
    "Cropping1D": case(lambda: L.Cropping1D((1, 2)), X),
    "Cropping2D": case(lambda: L.Cropping2D(((1, 2), (0, 1))), (2, 6, 5, 2)),
    "Cropping3D": case(lambda: L.Cropping3D(1), (2, 4, 5, 4, 2)),
    "UpSampling1D": case(lambda: L.UpSampling1D(3), X),
    "UpSampling2D": case(lambda: L.UpSampling2D((2, 3)), (2, 4, 3, 2)),
    "UpSampling2D.bilinear": case(
        lambda: L.UpSampling2D(2, interpolation="bilinear"), (2, 4, 3, 2)
    ),
    "UpSampling2D.bicubic": case(lambda: L.UpSampling2D(2, interpolation="bicubic"), (2, 4, 3, 2)),
    "UpSampling3D": case(lambda: L.UpSampling3D(2), (2, 2, 3, 2, 2)),
    "ZeroPadding1D": case(lambda: L.ZeroPadding1D((1, 2)), X),
    "ZeroPadding2D": case(lambda: L.ZeroPadding2D(((1, 2), (0, 1))), (2, 4, 3, 2)),
    "ZeroPadding3D": case(lambda: L.ZeroPadding3D(1), (2, 2, 3, 2, 2)),
}

NAMES = [
    "celu",
    "elu",
    "exponential",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "tanh",
    "tanh_shrink",
    "threshold",
]
ACTIVATION = {
    f"Activation.{name}": case(
        lambda n=name: L.Activation(
            n if n != "threshold" else lambda x: keras.activations.threshold(x, 0.1, -1.0)
        ),
        (2, 6),
    )
    for name in NAMES
} | {
    "ELU": case(lambda: L.ELU(0.7), X),
    "LeakyReLU": case(lambda: L.LeakyReLU(0.2), X),
    "PReLU": case(lambda: L.PReLU("uniform", shared_axes=[1]), X),
    "ReLU": case(lambda: L.ReLU(1.2, negative_slope=0.1, threshold=0.2), X),
    "Softmax": case(lambda: L.Softmax(axis=1), X),
    "Softmax.mask": case(lambda: L.Softmax(), (2, 6), mask(2, 6)),
    "Softmax.axes": case(lambda: L.Softmax(axis=(1, 2)), X),
}


def adapted(layer, data):
    layer.adapt(data)
    return layer


NORMALIZATION = {
    "BatchNormalization": case(lambda: L.BatchNormalization(), (2, 5, 4, 3)),
    "BatchNormalization.renorm_like": case(
        lambda: L.BatchNormalization(momentum=0.5, epsilon=0.1, scale=False, axis=1), (4, 3, 5)
    ),
    "BatchNormalization.plain": case(lambda: L.BatchNormalization(center=False), (6, 3)),
    "BatchNormalization.mask": case(
        lambda: L.BatchNormalization(), (2, 6, 3), kwargs={"mask": mask(2, 6)}
    ),
    "BatchNormalization.frozen": case(lambda: L.BatchNormalization(trainable=False), (6, 3)),
    "GroupNormalization": case(lambda: L.GroupNormalization(2), (2, 5, 4, 4)),
    "GroupNormalization.instance": case(lambda: L.GroupNormalization(-1), (2, 5, 4, 4)),
    "LayerNormalization": case(lambda: L.LayerNormalization(), X),
    "LayerNormalization.axes": case(lambda: L.LayerNormalization(axis=(1, 2)), X),
    "RMSNormalization": case(lambda: L.RMSNormalization(), X),
    "UnitNormalization": case(lambda: L.UnitNormalization(), X),
    "Normalization": case(lambda: adapted(L.Normalization(), floats(9, 4)), (2, 4)),
    "Normalization.invert": case(
        lambda: L.Normalization(mean=1.0, variance=4.0, invert=True), (2, 4)
    ),
}

BIG = (4, 20, 20)
REGULARIZATION = {
    "ActivityRegularization": case(lambda: L.ActivityRegularization(0.1), X),
    "Dropout": noisy(lambda: L.Dropout(0.4), BIG, zeros(0.4)),
    "Dropout.seed": noisy(lambda: L.Dropout(0.4, seed=3), BIG, zeros(0.4)),
    "Dropout.noise_shape": noisy(
        lambda: L.Dropout(0.5, noise_shape=(None, 1, 20)), (32, 4, 20), zeros(0.5)
    ),
    "SpatialDropout1D": noisy(lambda: L.SpatialDropout1D(0.5), (16, 3, 32), zeros(0.5)),
    "SpatialDropout2D": noisy(lambda: L.SpatialDropout2D(0.5), (16, 3, 2, 32), zeros(0.5)),
    "SpatialDropout3D": noisy(lambda: L.SpatialDropout3D(0.5), (16, 2, 2, 2, 32), zeros(0.5)),
    "AlphaDropout": noisy(lambda: L.AlphaDropout(0.3), BIG),
    "GaussianDropout": noisy(lambda: L.GaussianDropout(0.3), BIG),
    "GaussianNoise": noisy(lambda: L.GaussianNoise(0.5), BIG, spread(0.5)),
}

CASES = CORE | MERGING | RESHAPING | ACTIVATION | NORMALIZATION | REGULARIZATION
