"""The models that the package onnx tests backends with: their inputs, and the outputs they want."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import numpy_helper

import anyjax
from anyjax.dtypes import canonical, is_float

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# Integers of 64 bits whose bits are those of floats.
WIDE = {"test_bitcast_float64_to_int64", "test_bitcast_int64_to_float64"}


@functools.cache
def cases() -> dict[str, Any]:
    """Returns the test cases by name, without those whose models have to be downloaded."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # numpy's, about the values that the cases are made of
        listed = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: case for case in listed}


def model_of(case: Any) -> onnx.ModelProto:
    """Returns the model of a case."""
    return case.model or onnx.load(Path(case.model_dir) / "model.onnx")


def operator_of(case: Any) -> str:
    """Returns the operator that a case is about; of one in the form of its body, the operator's."""
    whole = cases().get(case.name.partition("_expanded")[0], case)
    operators = [node.op_type for node in model_of(whole).graph.node if node.op_type != "Constant"]
    return operators[0] if len({*operators}) == 1 else case.name.removeprefix("test_")


def data_of(case: Any) -> list[tuple[list[Any], list[Any]]]:
    """Returns (inputs, outputs) for each data set of a case."""
    if case.model is not None:
        return [([*map(_array, ins)], [*map(_array, outs)]) for ins, outs in case.data_sets]
    graph = model_of(case).graph
    sets = sorted(Path(case.model_dir).glob("test_data_set_*"))
    return [(_read(x, "input", graph.input), _read(x, "output", graph.output)) for x in sets]


def _read(folder: Path, end: str, infos: Any) -> list[Any]:
    values = []
    for i, info in enumerate(infos):
        file = folder / f"{end}_{i}.pb"
        if not file.exists():
            break
        kind = info.type.WhichOneof("value")
        if kind == "sequence_type":
            values.append(numpy_helper.to_list(onnx.SequenceProto.FromString(file.read_bytes())))
        elif kind == "optional_type":
            proto = onnx.OptionalProto.FromString(file.read_bytes())
            values.append(numpy_helper.to_optional(proto))
        else:
            values.append(_array(onnx.TensorProto.FromString(file.read_bytes())))
    return values


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def outputs(case: Any, inputs: list[Any], jitted: bool = True) -> list[Any]:
    """Returns what anyjax computes, in one program or operator by operator."""
    model = anyjax.from_onnx(model_of(case))
    key = jax.random.key(0)
    if jitted:
        out = model(*inputs, rng=key)
    else:
        out = model.apply(model.params, *inputs, rng=key)
    return list(out.values()) if len(model_of(case).graph.output) > 1 else [out]


def assert_same(got: Any, want: Any, case: Any) -> None:
    """Fails unless values agree in structure, shape, dtype and, with the case's own tolerance, in
    value.
    """
    if want is None:
        assert got is None
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for x, y in zip(got, want):
            assert_same(x, y, case)
    else:
        got = np.asarray(got)
        assert (got.shape, got.dtype) == (want.shape, canonical(want.dtype))
        if is_float(got.dtype):
            rtol = max(case.rtol, 2 * float(jnp.finfo(got.dtype).eps))  # sums are rounded once
            got, want = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(got, want, rtol, case.atol)
        else:
            np.testing.assert_array_equal(got, want)
