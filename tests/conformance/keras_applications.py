"""Every architecture of keras.applications beside its conversion: values, gradients and vmap.

python tests/conformance/keras_applications.py 'ResNet.*' [--shard 0/2]
"""

from __future__ import annotations

import argparse
import re
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf

import anyjax
from tests.conformance.keras_set import percentages, said
from tests.tolerance import assert_close

SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}
NAMES = [
    "MobileNetV3Small",
    "MobileNet",
    "MobileNetV3Large",
    "MobileNetV2",
    "ResNet50",
    "ResNet50V2",
    "EfficientNetB0",
    "EfficientNetV2B0",
    "VGG16",
    "VGG19",
    "Xception",
    "InceptionV3",
    "DenseNet121",
    "NASNetMobile",
    "ConvNeXtTiny",
    "ResNet101",
    "ResNet101V2",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "DenseNet169",
    "DenseNet201",
    "ResNet152",
    "ResNet152V2",
    "InceptionResNetV2",
    "ConvNeXtSmall",
    "EfficientNetB4",
    "EfficientNetV2S",
    "EfficientNetB5",
    "ConvNeXtBase",
    "EfficientNetV2M",
    "NASNetLarge",
    "EfficientNetB6",
    "EfficientNetB7",
    "EfficientNetV2L",
    "ConvNeXtLarge",
    "ConvNeXtXLarge",
]  # by size
DEPTH = 1 << 16  # terms in the sums of a network, one after another
# In float32 rounding moves a few of their million activations across the kink of a ReLU.
WIDE = {"InceptionResNetV2", "NASNetLarge"}
FEW = 4  # variables whose gradients are compared, from the first to the last


def build(name: str) -> tuple[keras.Model, np.ndarray]:
    """An architecture for the smallest images that it takes, and one such image."""
    keras.utils.set_random_seed(0)
    size = SIZES.get(name, 32)
    make = getattr(keras.applications, name)
    model = make(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None)
    for variable in model.variables:  # statistics that a trained network could have
        if variable.path.endswith("moving_variance"):
            variable.assign(variable * 0 + 1.3)
    image = np.random.default_rng(0).uniform(-1, 1, (1, size, size, 3)).astype(np.float32)
    return model, image


def run(name: str) -> dict[str, str]:
    """What is wrong, by mode: "" where nothing is."""
    dtype = "float64" if name in WIDE else "float32"
    keras.config.set_floatx(dtype)
    try:
        with jax.enable_x64(name in WIDE):
            return _run(name, dtype)
    finally:
        keras.config.set_floatx("float32")


def _run(name: str, dtype: str) -> dict[str, str]:
    started = time.perf_counter()
    network, image = build(name)
    image = image.astype(dtype)
    model = anyjax.from_tensorflow(network)
    names = list(model.params)
    names = names[:: max(1, len(names) // FEW)]
    images = np.stack([image, image * 0.5])
    want = theirs(network, images, [model.source.function.variables[n] for n in names])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {}
        for mode, value in computed(model, images, names).items():
            found[mode] = compared(value, want[mode])
    print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return found


def theirs(network, images, variables) -> dict[str, Any]:
    """The outputs for both images, the gradient of the sum of the first one's squares."""

    @tf.function(autograph=False)
    def both(first, second):
        with tf.GradientTape() as tape:
            tape.watch(first)
            out = network(first)
            loss = tf.reduce_sum(out**2)
        found = tape.gradient(loss, [first, *variables])
        return out, network(second), [tf.convert_to_tensor(x) for x in found]

    first, second, gradients = both(*map(tf.constant, images))
    outputs = np.stack([first.numpy(), second.numpy()])
    return {"value": outputs[0], "grad": [x.numpy() for x in gradients], "vmap": outputs}


def computed(model, images, names) -> dict[str, Any]:
    """The same by JAX, in one program if all of it works."""

    def loss(some, params, x):
        out = model.apply({**params, **some}, x)
        return jnp.sum(out**2), out

    def value(params, images):
        return {"value": model.apply(params, images[0])}

    def gradient(params, images):
        some = {n: params[n] for n in names}
        slope = jax.grad(loss, (0, 2), has_aux=True)
        (of_params, of_image), out = slope(some, params, images[0])
        return {"value": out, "grad": [of_image, *(of_params[n] for n in names)]}

    def mapped(params, images):
        return {"vmap": jax.vmap(lambda x: model.apply(params, x))(images)}

    try:
        return jax.jit(lambda *args: {**gradient(*args), **mapped(*args)})(model.params, images)
    except Exception:  # one mode after the other tells which it is, and keeps what each says
        found: dict[str, Any] = {}
        for mode, one in (("value", value), ("grad", gradient), ("vmap", mapped)):
            try:
                found[mode] = jax.jit(one)(model.params, images)[mode]
            except Exception as error:
                found[mode] = said(error)
        return found


def compared(got: Any, want: Any) -> str:
    if isinstance(got, str):
        return got
    try:
        assert_close(got, want, reduction=DEPTH)
    except AssertionError as error:
        return said(error)
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default=".*")
    parser.add_argument("--shard", default="0/1", metavar="I/N")
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    results = {}
    for name in [n for n in NAMES if re.fullmatch(options.pattern, n)][first::step]:
        try:
            results[name] = run(name)
        except Exception as error:
            results[name] = dict.fromkeys(("value", "grad", "vmap"), said(error))
        for mode, wrong in results[name].items():
            if wrong:
                print(f"{name} {mode}: {wrong}", flush=True)
        jax.clear_caches()
        keras.backend.clear_session()
    print(percentages(results))


if __name__ == "__main__":
    main()
