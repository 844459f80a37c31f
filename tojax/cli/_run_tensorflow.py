"""``tojax run`` of a SavedModel or a Keras file, with JAX beside TensorFlow."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from rich.console import Console

from tojax.cli import _run as shared
from tojax.cli import _shown
from tojax.cli._shown import timed


def run(source: str, signature: str | None, batch: int, as_json: bool, start: float) -> None:
    """Runs ``tojax run`` for TensorFlow."""
    with Console(stderr=True).status("importing TensorFlow and JAX") as bar:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        import tojax
        from tojax.tensorflow import savedmodel

        imports = time.time() - start
        bar.update("loading")
        load, loaded = timed(lambda: savedmodel.load(source))  # it keeps the variables alive
        function = savedmodel.choose(loaded, signature) if hasattr(loaded, "signatures") else loaded
        args, kwargs = examples(savedmodel.call_of(function), batch)
        bar.update("converting")
        convert, model = timed(lambda: tojax.from_tensorflow(function, *args, **kwargs))
        bar.update("running TensorFlow")
        theirs, want = _tensorflow_times(tf, function, args, kwargs)
        ours, got = _jax_times(bar, model, args, kwargs)
    arrays = [x for x in tf.nest.flatten((args, kwargs)) if isinstance(x, np.ndarray)]
    shown = ", ".join(f"{x.dtype}{list(x.shape)}" for x in arrays)
    times = imports, load, convert, *ours
    comparison = shared.Comparison("TensorFlow", model, source, "float32", times, theirs)
    note = f"inputs: {shown}, drawn at random"
    comparison.show(_shown.console(), want, got, as_json, note)


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


def _jax_times(bar, model, args, kwargs) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Returns ((trace, compile, first, following), outputs)."""
    import jax

    bar.update("tracing")
    flat = lambda out: {str(i): x for i, x in enumerate(jax.tree.leaves(out))}
    leaves, structure = jax.tree.flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray)]

    @jax.jit
    def step(params, state, arrays):
        for i, x in zip(places, arrays):
            leaves[i] = x
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return flat(model.apply(params, *args, state=state, **kwargs))

    arrays = [jax.numpy.asarray(model.source.as_array(leaves[i])) for i in places]
    trace, traced = timed(lambda: step.trace(model.params, model.state, arrays))
    bar.update("compiling")
    compiling, compiled = timed(lambda: traced.lower().compile())
    bar.update("running JAX")
    call = lambda: jax.block_until_ready(compiled(model.params, model.state, arrays))
    first, got = timed(call)
    following = min(timed(call)[0] for _ in range(shared.REPEATS))
    return (trace, compiling, first, following), got
