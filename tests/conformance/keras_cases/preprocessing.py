"""Preprocessing of numbers, tokens, audio and images."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers as L

from tests.conformance.keras_cases.arguments import case, floats, images, integers, positive

TOKENS = integers(6, 3, 4)
STRINGS = np.array([["a", "b"], ["c", "a"]])


def adapted(layer, data):
    layer.adapt(data)
    return layer


NUMBERS = {
    "Rescaling": case(lambda: L.Rescaling(1 / 127.5, -1), (2, 4)),
    "Discretization": case(lambda: L.Discretization([-0.5, 0.0, 0.7]), (3, 4)),
    "Discretization.one_hot": case(
        lambda: L.Discretization([-0.5, 0.0], output_mode="one_hot"), (3, 1)
    ),
    "Discretization.count": case(
        lambda: L.Discretization([-0.5, 0.0], output_mode="count"), (3, 4)
    ),
    "CategoryEncoding.multi_hot": case(lambda: L.CategoryEncoding(6), TOKENS),
    "CategoryEncoding.one_hot": case(lambda: L.CategoryEncoding(6, "one_hot"), TOKENS[:, :1]),
    "CategoryEncoding.count": case(lambda: L.CategoryEncoding(6, "count"), TOKENS),
    "Hashing.integers": case(lambda: L.Hashing(5), TOKENS, refused="AsString"),
    "HashedCrossing": case(
        lambda: L.HashedCrossing(5), (TOKENS[:, :1], TOKENS[:, 1:2]), refused="SparseCross"
    ),
    "IntegerLookup": case(lambda: L.IntegerLookup(vocabulary=[1, 2, 4]), TOKENS),
    "IntegerLookup.multi_hot": case(
        lambda: L.IntegerLookup(vocabulary=[1, 2, 4], output_mode="multi_hot"), TOKENS
    ),
    "StringLookup": case(
        lambda: L.StringLookup(vocabulary=["a", "b"]), STRINGS, refused="string"
    ),
    "Hashing.strings": case(lambda: L.Hashing(5), STRINGS, refused="string"),
    "TextVectorization": case(
        lambda: L.TextVectorization(vocabulary=["a", "b"]), STRINGS[:, :1], refused="string"
    ),
    "MelSpectrogram": case(
        lambda: L.MelSpectrogram(16, 8, 4, sampling_rate=80, num_mel_bins=3), (2, 64)
    ),
    "STFTSpectrogram": case(
        lambda: L.STFTSpectrogram("log", frame_length=8, frame_step=4, fft_length=16), (2, 40, 1)
    ),
    "STFTSpectrogram.real": case(
        lambda: L.STFTSpectrogram("real", frame_length=8, frame_step=4, fft_length=16), (2, 40, 1)
    ),
}  # fmt: skip

PIXELS = images(2, 8, 8, 3)
IMAGES = {
    "CenterCrop": case(lambda: L.CenterCrop(4, 5), PIXELS),
    "CenterCrop.larger": case(lambda: L.CenterCrop(10, 12), PIXELS),
    "Resizing": case(lambda: L.Resizing(5, 12), PIXELS),
    "Resizing.nearest": case(lambda: L.Resizing(5, 12, "nearest"), PIXELS),
    "Resizing.bicubic": case(lambda: L.Resizing(5, 12, "bicubic"), PIXELS),
    "Resizing.lanczos": case(lambda: L.Resizing(5, 12, "lanczos3", antialias=True), PIXELS),
    "Resizing.crop": case(lambda: L.Resizing(4, 7, crop_to_aspect_ratio=True), PIXELS),
    "Resizing.pad": case(lambda: L.Resizing(4, 7, pad_to_aspect_ratio=True), PIXELS),
    # its ends are 0 and 255 up to rounding, which decides whether the clipping there has a gradient
    "AutoContrast": case(lambda: L.AutoContrast(value_range=(0, 255)), PIXELS, grad=False),
    "Equalization": case(lambda: L.Equalization(), PIXELS, grad=False),
    "Solarization": case(lambda: L.Solarization(0.5, 0.5), PIXELS, train="drawn"),
    "ContrastLimitedAdaptiveHistogramEqualization": case(
        lambda: L.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2)),
        PIXELS,
        grad=False,
    ),
}


def augmentation(make, *args, **options):
    return case(make, *(args or (PIXELS,)), train="drawn", **options)


AUGMENTATION = {
    "AugMix": augmentation(lambda: L.AugMix(num_chains=2, chain_depth=2), compiled=True),
    "RandAugment": augmentation(lambda: L.RandAugment(num_ops=2), compiled=True),
    "RandomBrightness": augmentation(lambda: L.RandomBrightness(0.3)),
    "RandomColorDegeneration": augmentation(lambda: L.RandomColorDegeneration(0.5)),
    "RandomColorJitter": augmentation(
        lambda: L.RandomColorJitter((0, 255), 0.3, 0.3, 0.3, 0.3), compiled=True
    ),
    "RandomContrast": augmentation(lambda: L.RandomContrast(0.4)),
    "RandomCrop": augmentation(lambda: L.RandomCrop(5, 6)),
    "RandomElasticTransform": augmentation(lambda: L.RandomElasticTransform(1.0, 0.5)),
    "RandomErasing": augmentation(lambda: L.RandomErasing(), images(16, 6, 6, 3)),
    "RandomFlip": augmentation(lambda: L.RandomFlip(), images(16, 6, 6, 3)),
    "RandomGaussianBlur": augmentation(lambda: L.RandomGaussianBlur()),
    "RandomGrayscale": augmentation(lambda: L.RandomGrayscale(), images(16, 6, 6, 3)),
    "RandomHue": augmentation(lambda: L.RandomHue(0.5)),
    "RandomInvert": augmentation(lambda: L.RandomInvert(), images(16, 6, 6, 3)),
    "RandomPerspective": augmentation(lambda: L.RandomPerspective()),
    "RandomPosterization": augmentation(lambda: L.RandomPosterization(4)),
    "RandomRotation": augmentation(lambda: L.RandomRotation(0.3)),
    "RandomSaturation": augmentation(lambda: L.RandomSaturation(0.5)),
    "RandomSharpness": augmentation(lambda: L.RandomSharpness(0.5)),
    "RandomShear": augmentation(lambda: L.RandomShear(0.4, 0.3)),
    "RandomTranslation": augmentation(lambda: L.RandomTranslation(0.3, 0.2)),
    "RandomZoom": augmentation(lambda: L.RandomZoom(0.4)),
    "CutMix": augmentation(
        lambda: L.CutMix(), {"images": PIXELS, "labels": floats(2, 3)}
    ),
    "MixUp": augmentation(
        lambda: L.MixUp(), {"images": PIXELS, "labels": floats(2, 3)}
    ),
    "MaxNumBoundingBoxes": case(
        lambda: L.MaxNumBoundingBoxes(3, bounding_box_format="xyxy"),
        {
            "images": PIXELS,
            "labels": floats(2, 3),
            "bounding_boxes": {"boxes": positive(2, 2, 4), "labels": integers(5, 2, 2)},
        },
        compiled=True,
    ),
    "RandomFlip.in_a_model": augmentation(
        lambda: keras.Sequential([L.RandomFlip("horizontal"), L.Conv2D(2, 3)]),
        images(16, 6, 6, 3),
    ),
}  # fmt: skip

CASES = NUMBERS | IMAGES | AUGMENTATION
