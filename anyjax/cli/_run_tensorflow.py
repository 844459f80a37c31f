"""``anyjax run`` of a SavedModel or a Keras file, with JAX beside TensorFlow."""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Any

import numpy as np

from anyjax.cli import _run as shared
from anyjax.cli import _shown
from anyjax.cli._shown import timed
from anyjax.cli.options import Run


def run(options: Run, start: float) -> None:
    """Runs ``anyjax run`` for TensorFlow."""
    with _shown.progress("importing TensorFlow and JAX") as bar:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import jax
        import tensorflow as tf

        import anyjax
        from anyjax.tensorflow import savedmodel

        imports = time.time() - start
        bar.update("loading")
        load, loaded = timed(
            lambda: savedmodel.load(options.source)
        )  # it keeps the variables alive
        function = (
            savedmodel.choose(loaded, options.signature)
            if hasattr(loaded, "signatures")
            else loaded
        )
        args, kwargs = examples(savedmodel.call_of(function), options.batch)
        bar.update("converting")
        convert, model = timed(lambda: anyjax.from_tensorflow(function, *args, **kwargs))
        bar.update("running TensorFlow")
        theirs, want = _tensorflow_times(tf, function, args, kwargs)
        ours, got = shared.jax_times_of(
            bar, model, args, kwargs, lambda out: dict(zip(map(str, count()), jax.tree.leaves(out)))
        )
    arrays = [x for x in tf.nest.flatten((args, kwargs)) if isinstance(x, np.ndarray)]
    shown = ", ".join(f"{x.dtype}{list(x.shape)}" for x in arrays)
    times = imports, load, convert, *ours
    comparison = shared.Comparison("TensorFlow", model, options.source, "float32", times, theirs)
    note = f"inputs: {shown}, drawn at random"
    comparison.show(_shown.console(), want, got, options.json, note)


def examples(specs: tuple[tuple, dict[str, Any]], batch: int) -> tuple[tuple, dict[str, Any]]:
    """Draws arrays for the specs of a call; unknown sizes are ``batch``, integers 0 or 1."""
    import tensorflow as tf

    rng = np.random.default_rng(0)

    def example(spec):
        if not isinstance(spec, tf.TensorSpec):
            return spec
        shape = [batch if n is None else n for n in spec.shape]
        dtype = np.dtype(spec.dtype.as_numpy_dtype)
        integers = dtype.kind in "iub"
        values = rng.integers(0, 2, shape) if integers else rng.standard_normal(shape)
        return values.astype(dtype)

    return tf.nest.map_structure(example, specs)


def _tensorflow_times(
    tf, function, args, kwargs
) -> tuple[tuple[float, float], dict[str, np.ndarray]]:
    run = function if hasattr(function, "structured_input_signature") else tf.function(function)
    tensors = tf.nest.map_structure(
        lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, (args, kwargs)
    )
    call = lambda: run(*tensors[0], **tensors[1])
    first, out = timed(call)
    following = min(timed(call)[0] for _ in range(shared.REPEATS))
    return (first, following), {str(i): x.numpy() for i, x in enumerate(tf.nest.flatten(out))}
