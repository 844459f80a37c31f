"""The tests of operators and small models that the package onnx has for its backends."""

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import anyjax
from anyjax.dtypes import is_float
from anyjax.onnx.core.schema import Static
from anyjax.onnx.engine.weights import uses_of
from tests.conformance.onnx_set import (
    DATA,
    WIDE,
    assert_same,
    cases,
    data_of,
    model_of,
    operator_of,
    outputs,
)
from tests.expectations import expected_failures, params

pytestmark = [
    pytest.mark.sample(every=25),
    pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument"),
]

OUTSIDE = expected_failures("onnx_outside_of_jit.txt")
REAL = {TensorProto.FLOAT, TensorProto.DOUBLE}
ROUNDED = {v for k, v in TensorProto.DataType.items() if "FLOAT" in k and k != "FLOAT"}
LIGHT = sorted(DATA.glob("light/light_*.onnx"))
# Its weights make numbers of 1e10. XLA computes their mean once for the maximum and once more for
# the softmax, and the two are 1024 apart: jax.nn.softmax of a mean under jit is NaN, too.
OVERFLOWS = pytest.mark.xfail(reason="XLA rounds one mean in two ways, exp(1024)", strict=True)
MARKS = {"light_squeezenet": [OVERFLOWS]}


# Integers that decide shapes are static in a call by themselves.
@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
@pytest.mark.parametrize("name", params([*cases()], "onnx_set.txt"))
def test_values(name, record_property):
    """In one program; where values decide shapes, operator by operator."""
    case = cases()[name]
    record_property("operator", operator_of(case))
    with jax.enable_x64(name in WIDE):
        for inputs, wanted in data_of(case):
            for got, want in zip(outputs(case, inputs, name not in OUTSIDE), wanted, strict=True):
                assert_same(got, want, case)
    jax.clear_caches()


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
@pytest.mark.parametrize("name", [*OUTSIDE])
def test_sizes_that_are_values_are_refused_in_a_program(name):
    case = cases()[name]
    with pytest.raises(anyjax.errors.DataDependent, match="node '"):
        outputs(case, data_of(case)[0][0])


@pytest.mark.parametrize(
    "file", [pytest.param(x, id=x.stem, marks=MARKS.get(x.stem, ())) for x in LIGHT]
)
def test_a_network(file):
    model = anyjax.from_onnx(file)
    shape = model.source.inputs[0].shape
    proto = TensorProto.FromString(file.with_name(f"{file.stem}_output_0.pb").read_bytes())
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / np.prod(shape)
    np.testing.assert_allclose(model(x), numpy_helper.to_array(proto), 1e-3, 1e-7)


# Gradients, against differences in float64.


def differentiable():
    names = [name for name, case in cases().items() if name not in OUTSIDE and _smooth(case)]
    return params(names, "onnx_gradients.txt", known=[*cases()])


def _smooth(case):
    """Returns whether floats of at least 32 bits go in and come out, and no narrower ones."""
    if case.name in expected_failures("onnx_set.txt"):
        return False
    graph = model_of(case).graph
    ends = [{x.type.tensor_type.elem_type for x in end} for end in (graph.input, graph.output)]
    return all(end & REAL for end in ends) and not (ends[0] | ends[1]) & ROUNDED


@pytest.mark.parametrize("name", differentiable())
def test_gradient(name, record_property):
    """Along a random direction both derivatives are those of the differences."""
    case = cases()[name]
    record_property("operator", operator_of(case))
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        model = anyjax.from_onnx(widened(model_of(case)))
        inputs = [_moved(x, rng) for x in data_of(case)[0][0]]
        function, at = _of_floats(model, inputs)
        steps = [rng.standard_normal(x.shape) for x in at]
        _, forward = jax.jvp(function, at, steps)
        near = [function(*(x + e * d for x, d in zip(at, steps))) for e in (1e-6, -1e-6)]
        out, pullback = jax.vjp(function, *at)
        for slope, value, above, below in zip(forward, out, *near):
            with np.errstate(invalid="ignore"):  # of infinities
                difference = (np.asarray(above) - np.asarray(below)) / 2e-6
            finite = np.isfinite(difference)
            largest = np.abs([1, *difference[finite], *np.asarray(value)[np.isfinite(value)]]).max()
            np.testing.assert_allclose(
                np.asarray(slope)[finite], difference[finite], 1e-5, 1e-5 * largest
            )
        weights = [np.where(np.isfinite(x), rng.standard_normal(x.shape), 0) for x in out]
        backward = pullback([np.asarray(w, x.dtype) for w, x in zip(weights, out)])
        dot = lambda a, b: sum(float(np.sum(np.asarray(x) * y, where=y != 0)) for x, y in zip(a, b))
        assert dot(forward, weights) == pytest.approx(dot(backward, steps), 1e-6, 1e-6)
    jax.clear_caches()


def _of_floats(model, inputs):
    """Returns the model as a jitted function of the floats that decide no shape, and these."""
    uses = uses_of(model.source.graph)
    is_free = lambda name, x: getattr(x, "dtype", None) == np.float64 and Static not in uses[name]
    names = [x.name for x in model.source.inputs]
    places = [i for i, (name, x) in enumerate(zip(names, inputs)) if is_free(name, x)]

    def function(*floats):
        values = list(inputs)
        for i, x in zip(places, floats):
            values[i] = x
        out = model.apply(model.params, *values, rng=jax.random.key(0))
        return [x for x in jax.tree.leaves(out) if is_float(x.dtype)]

    return jax.jit(function), [inputs[i] for i in places]


def _moved(value, rng):
    """Returns numbers in float64, away from ties and steps, and of a size that differences have."""
    if getattr(value, "dtype", None) not in (np.float32, np.float64):
        return value
    noise = rng.standard_normal(value.shape)
    large = np.isfinite(value) & (np.abs(value) > 1e4)
    return np.where(large, noise, value.astype(np.float64) + 1e-4 * noise)


def widened(model):
    """Returns the model with float64 for float32."""
    wide = type(model)()
    wide.CopyFrom(model)
    graphs = [wide.graph]
    for function in wide.functions:
        for node in function.node:
            graphs += _widen_node(node)
    while graphs:
        graph = graphs.pop()
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
        for tensor in graph.initializer:
            _widen(tensor)
        for node in graph.node:
            graphs += _widen_node(node)
    return wide


def _widen(tensor):
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _widen_node(node):
    if node.op_type == "Constant" and node.attribute[0].name.startswith("value_float"):
        array = np.asarray(helper.get_attribute_value(node.attribute[0]), np.float64)
        node.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))
    if node.op_type in ("LayerNormalization", "RMSNormalization") and "stash_type" not in {
        x.name for x in node.attribute
    }:
        node.attribute.append(helper.make_attribute("stash_type", TensorProto.FLOAT))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1, np.float32))
        node.attribute.append(helper.make_attribute("value", zero))
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen(attribute.t)
        if attribute.name in ("to", "dtype", "stash_type") and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
    return [x.g for x in node.attribute if x.HasField("g")]
