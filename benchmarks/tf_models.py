"""anyjax beside tf2jax and tf.function on TensorFlow models: ratios from one interleaved run.

python benchmarks/tf_models.py                      # all cases
python benchmarks/tf_models.py --cases mlp lstm --rounds 3

Within a round the libraries take turns. ``convert`` is the call of that on a function that
TensorFlow has traced; ``trace`` and ``compile`` are JAX's; ``step`` is the median of many calls.
The outputs are compared with TensorFlow's first: a case that differs says so.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import keras
import numpy as np
import tensorflow as tf
import tf2jax
from rich.console import Console
from rich.table import Table

import anyjax

STEPS = ("convert", "trace", "compile", "step")


def mlp() -> tuple[keras.Model, tuple]:
    layers = [keras.layers.Dense(512, "relu") for _ in range(4)]
    return keras.Sequential([keras.layers.Input((256,)), *layers]), (32, 256)


def transformer() -> tuple[keras.Model, tuple]:
    x = inputs = keras.layers.Input((64, 128))
    for _ in range(4):
        y = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 32)(y, y)
        y = keras.layers.Dense(512, "gelu")(keras.layers.LayerNormalization()(x))
        x = x + keras.layers.Dense(128)(y)
    return keras.Model(inputs, x), (8, 64, 128)


def lstm() -> tuple[keras.Model, tuple]:
    model = keras.Sequential([keras.layers.Input((50, 32)), keras.layers.LSTM(64)])
    return model, (16, 50, 32)


def resnet() -> tuple[keras.Model, tuple]:
    return keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3)), (4, 96, 96, 3)


def mobilenet() -> tuple[keras.Model, tuple]:
    return keras.applications.MobileNetV2(weights=None, input_shape=(96, 96, 3)), (4, 96, 96, 3)


def efficientnet() -> tuple[keras.Model, tuple]:
    made = keras.applications.EfficientNetB0(weights=None, input_shape=(96, 96, 3))
    return made, (4, 96, 96, 3)


CASES: dict[str, Callable] = {
    f.__name__: f for f in (mlp, transformer, lstm, resnet, mobilenet, efficientnet)
}
LIBRARIES = {"anyjax": anyjax.tensorflow.convert, "tf2jax": tf2jax.convert}
# XLA:CPU has YNNPACK compute convolutions, too; with this it uses its own ("other convolutions").
# They are the compiler_options of jax.jit, which only the outermost one takes.
PRODUCTS_ALONE = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}


def timed(call: Callable) -> tuple[float, object]:
    began = time.perf_counter()
    out = call()
    return time.perf_counter() - began, out


def prepare(convert: Callable, function, x) -> tuple[dict[str, float], list[Callable], np.ndarray]:
    """Times of the first three steps, the compiled step both ways, and its output."""
    found = {}
    gc.collect()  # what the others left is not this one's
    found["convert"], (fn, params) = timed(lambda: convert(function, x))
    params = {name: jax.numpy.asarray(np.asarray(value)) for name, value in params.items()}
    step = jax.jit(lambda params, x: fn(params, x)[0])
    gc.collect()
    found["trace"], traced = timed(lambda: step.trace(params, x))
    found["compile"], compiled = timed(lambda: traced.lower().compile())
    other = traced.lower().compile(compiler_options=PRODUCTS_ALONE)
    runs = [lambda c=c: jax.block_until_ready(c(params, x)) for c in (compiled, other)]
    return found, runs, np.asarray(runs[0]())


def case(name: str, rounds: int, repeats: int) -> dict[str, dict[str, list[float]] | str]:
    """The times of every library, or what went wrong in it."""
    model, shape = CASES[name]()
    function = tf.function(lambda x: model(x, training=False), autograph=False)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    tensor = tf.constant(x)
    want = function(tensor).numpy()
    times: dict = {}
    order = random.Random(0)
    for _ in range(rounds):
        steps = {"tf.function": lambda: function(tensor).numpy()}
        for library, convert in LIBRARIES.items():
            if isinstance(times.get(library), str):
                continue
            try:
                found, runs, out = prepare(convert, function, x)
            except Exception as error:  # of the library that is measured
                times[library] = f"{type(error).__name__}: {error}".splitlines()[0][:90]
                continue
            np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3 * abs(want).max())
            steps |= {library: runs[0]}
            if library == "anyjax":
                steps |= {"products alone": runs[1]}
            for step, seconds in found.items():
                times.setdefault(library, {}).setdefault(step, []).append(seconds)
        for _ in range(repeats):  # in any order: TensorFlow's threads spin on after its turn
            for library, run in order.sample(list(steps.items()), len(steps)):
                times.setdefault(library, {}).setdefault("step", []).append(timed(run)[0])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    console = Console()
    table = Table("case", "step", "anyjax ms", "anyjax / tf2jax", "anyjax / tf.function")
    for name in options.cases:
        with console.status(name):
            times = case(name, options.rounds, options.repeats)
        for step in STEPS:
            own = statistics.median(times["anyjax"][step])
            ratios = []
            for other in ("tf2jax", "tf.function"):
                found = times[other]
                if isinstance(found, str):
                    ratios.append(found if step == "convert" else "")
                else:
                    shown = found.get(step)
                    ratios.append(f"{own / statistics.median(shown):.2f}" if shown else "")
            table.add_row(name, step, f"{1e3 * own:.1f}", *ratios)
        own = statistics.median(times["products alone"]["step"])
        ratio = own / statistics.median(times["tf.function"]["step"])
        table.add_row(name, "step, other convolutions", f"{1e3 * own:.1f}", "", f"{ratio:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
