"""``anyjax inspect`` of an ONNX file: its inputs, outputs, tensors and operators."""

from __future__ import annotations

from collections import Counter
from typing import cast

from anyjax.cli import _shown


def inspect(source: str, as_json: bool) -> None:
    """Runs ``anyjax inspect`` for ONNX; ends with MissingOps where an operator has no lowering."""
    with _shown.progress("reading the graph"):
        import anyjax
        from anyjax.onnx.core.dtypes import name_of
        from anyjax.onnx.source import OnnxSource

        model = anyjax.from_onnx(source)
        graph_source = cast(OnnxSource, model.source)
        graph = graph_source.graph
        inputs = {
            x.name: f"{name_of(x.element)}[{', '.join(str(n or '?') for n in x.shape or ())}]"
            for x in graph_source.inputs
        }
        ops = Counter(str(node.op) for _, node in graph.each()).most_common()
    arrays = {**model.params, **model.state}
    rows = {k: {"dtype": str(x.dtype), "shape": [*x.shape]} for k, x in arrays.items()}
    if as_json:
        about = {"inputs": inputs, "outputs": [*graph.outputs], "operators": dict(ops)}
        _shown.as_json({"from": source, **about, "params": [*model.params], "arrays": rows})
        return
    console = _shown.console()
    console.print(f"{model.source.name} from {source}", markup=False)
    for name, kind in inputs.items():
        console.print(f"input {name}: {kind}", markup=False)
    console.print(f"outputs {', '.join(graph.outputs)}", markup=False)
    kinds = ("state", "params")
    cells = [
        (k, kinds[k in model.params], str(x["dtype"]), str(x["shape"])) for k, x in rows.items()
    ]
    console.print(_shown.table(["tensor", "kind", "dtype", "shape"], cells))
    console.print(", ".join(f"{count} {op}" for op, count in ops), markup=False)
    console.print(f"anyjax run {source} compares it with onnxruntime", markup=False)
