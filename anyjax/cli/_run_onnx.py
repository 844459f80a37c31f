"""``anyjax run`` of an ONNX file, with JAX beside onnxruntime."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from anyjax.cli import _run as shared
from anyjax.cli import _shown
from anyjax.cli._shown import timed
from anyjax.cli.options import Run
from anyjax.errors import ForwardFailed

SIDE, LENGTH = 64, 16  # of images, and of everything else whose size the file leaves open


def run(options: Run, start: float) -> None:
    """Runs ``anyjax run`` for ONNX."""
    with _shown.progress("importing onnxruntime and JAX") as bar:
        import jax
        import onnxruntime

        import anyjax

        imports = time.time() - start
        bar.update("converting")
        convert, model = timed(lambda: anyjax.from_onnx(options.source))
        bar.update("loading")
        load, session = timed(
            lambda: onnxruntime.InferenceSession(options.source, providers=["CPUExecutionProvider"])
        )
        arrays = examples(model, options.batch)
        bar.update("running onnxruntime")
        theirs, want = _onnxruntime_times(session, arrays)
        names = model.source.graph.outputs
        outputs = lambda out: dict(zip(names, jax.tree.leaves(out)))
        ours, got = shared.jax_times_of(bar, model, (), arrays, outputs)
    shown = ", ".join(f"{k} {x.dtype}{list(x.shape)}" for k, x in arrays.items())
    times = imports, load, convert, *ours
    comparison = shared.Comparison("onnxruntime", model, options.source, "float32", times, theirs)
    comparison.show(_shown.console(), want, got, options.json, f"inputs: {shown}, drawn at random")


def examples(model: Any, batch: int) -> dict[str, np.ndarray]:
    """Draws arrays for the inputs of a graph; sizes of one name are equal, integers 0 or 1."""
    from anyjax.onnx.core.dtypes import to_numpy

    rng = np.random.default_rng(0)
    sizes: dict[object, int] = {}

    def example(input: Any) -> np.ndarray:
        shape = input.shape or ()
        usual = [batch, *[SIDE if len(shape) > 3 else LENGTH] * len(shape)]
        numbers = [
            n if isinstance(n, int) else sizes.setdefault(n or (input.name, i), usual[i])
            for i, n in enumerate(shape)
        ]
        dtype = to_numpy(input.element)
        integers = dtype.kind in "iub"
        values = rng.integers(0, 2, numbers) if integers else rng.standard_normal(numbers)
        return np.asarray(values, dtype)

    return {x.name: example(x) for x in model.source.inputs}


def _onnxruntime_times(
    session: Any, arrays: dict[str, np.ndarray]
) -> tuple[tuple[float, float], dict[str, np.ndarray]]:
    call = lambda: session.run(None, arrays)
    try:
        first, out = timed(call)
    except Exception as error:  # onnxruntime's errors have many classes
        raise ForwardFailed(
            "onnxruntime cannot run the model",
            why=" ".join(str(error).split())[:300],
            do="call anyjax.from_onnx(file) with inputs of your own: these were drawn at random",
        ) from error
    following = min(timed(call)[0] for _ in range(shared.REPEATS))
    return (first, following), {x.name: y for x, y in zip(session.get_outputs(), out)}
