"""An ONNX file, and how onnxruntime runs it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import numpy as np

from anyjax.cli import _shown
from anyjax.cli._shown import timed
from anyjax.cli.sources import (
    LENGTH,
    Contents,
    Opened,
    Peer,
    Request,
    described,
    drawn,
    listed,
    since_start,
)
from anyjax.errors import ForwardFailed
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import onnxruntime

    from anyjax.onnx.engine.signature import Input
    from anyjax.onnx.source import OnnxSource

SIDE = 64  # of images


def opened(request: Request) -> Opened:
    """Opens a file with arrays for its inputs."""
    request.report("importing onnxruntime and JAX")
    if request.peer:
        import onnxruntime

    import anyjax

    imports = since_start()
    request.report("converting")
    convert, model = timed(lambda: anyjax.from_onnx(request.source))
    load, peer, arrays = 0.0, None, _examples(cast("OnnxSource", model.source), request.rows)
    if request.peer:
        request.report("loading")
        start = lambda: onnxruntime.InferenceSession(
            request.source, providers=["CPUExecutionProvider"]
        )
        load, session = timed(start)
        peer = _peer(session, arrays)
    return Opened(
        model=model, kwargs=arrays, place=request.source,
        seconds={"imports": imports, "load": load, "convert": convert},
        note=f"inputs: {listed(described(arrays))}, drawn at random", peer=peer,
    )  # fmt: skip


def contents(request: Request) -> Contents:
    """Shows inputs, outputs, tensors and operators."""
    with _shown.progress("reading the graph"):
        import anyjax
        from anyjax.onnx.core.dtypes import name_of

        model = anyjax.from_onnx(request.source)
        source = cast("OnnxSource", model.source)
    sizes = lambda shape: ", ".join(str(n or "?") for n in shape or ())
    inputs = {x.name: f"{name_of(x.element)}[{sizes(x.shape)}]" for x in source.inputs}
    ops = Counter(str(node.op) for _, node in source.graph.each()).most_common()
    arrays = {**model.params, **model.state}
    rows = {k: {"dtype": str(x.dtype), "shape": [*x.shape]} for k, x in arrays.items()}
    cells = [
        (k, "params" if k in model.params else "state", str(x["dtype"]), str(x["shape"]))
        for k, x in rows.items()
    ]
    about = {"inputs": inputs, "outputs": [*source.graph.outputs], "operators": dict(ops)}
    return Contents(
        {"from": request.source, **about, "params": [*model.params], "arrays": rows},
        [
            f"{source.name} from {request.source}",
            *(f"input {name}: {kind}" for name, kind in inputs.items()),
            f"outputs {', '.join(source.graph.outputs)}",
            _shown.table(["tensor", "kind", "dtype", "shape"], cells),
            ", ".join(f"{count} {op}" for op, count in ops),
            f"anyjax run {request.source} compares it with onnxruntime",
        ],
    )


def _examples(source: OnnxSource, rows: int) -> dict[str, PyTree]:
    """Draws arrays for the inputs of a graph; sizes of one name are equal."""
    from anyjax.onnx.core.dtypes import to_numpy

    rng = np.random.default_rng(0)
    sizes: dict[object, int] = {}

    def example(input: Input) -> np.ndarray:
        shape = input.shape or ()
        usual = [rows, *[SIDE if len(shape) > 3 else LENGTH] * len(shape)]
        numbers = [
            n if isinstance(n, int) else sizes.setdefault(n or (input.name, i), usual[i])
            for i, n in enumerate(shape)
        ]
        return drawn(rng, numbers, to_numpy(input.element))

    return {x.name: example(x) for x in source.inputs}


def _peer(session: onnxruntime.InferenceSession, arrays: dict[str, PyTree]) -> Peer:
    """Returns onnxruntime's side; both give the outputs in the order of the graph."""
    import jax

    names = [x.name for x in session.get_outputs()]

    def run() -> list[np.ndarray]:
        try:
            return session.run(None, arrays)
        except Exception as error:  # onnxruntime's errors have many classes
            raise ForwardFailed(
                "onnxruntime cannot run the model",
                why=" ".join(str(error).split())[:300],
                do="call anyjax.from_onnx(file) with other inputs: these were drawn at random",
            ) from error

    return Peer("onnxruntime", run, lambda out: dict(zip(names, jax.tree.leaves(out))))
