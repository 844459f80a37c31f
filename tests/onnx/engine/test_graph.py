"""Functions of models, and parts of graphs."""

import numpy as np
import onnx
import pytest

import anyjax
from anyjax.errors import BadCheckpoint, MissingOps, Unsupported, WrongArguments
from tests.onnx.agree import agree, model, normal

FUNCTION = """
m (float[2, 3] x) => (float[2, 3] y) { h = local.Scaled <by: float = 3.0> (x) y = local.Scaled (h) }
<domain: "local", opset_import: ["": 18]>
Scaled <by: float = 2.0> (a) => (b) { c = Constant <value_float: float = @by> () b = Mul(a, c) }
"""


def test_functions_with_attributes_and_defaults():
    proto = model(FUNCTION.strip(), local=1)
    x = normal(2, 3)
    np.testing.assert_allclose(anyjax.from_onnx(proto)(x), 6 * x, rtol=1e-6)
    agree(proto, x)


def test_a_function_that_calls_itself():
    text = """m (float[2] x) => (float[2] y) { y = local.F(x) }
    <domain: "local", opset_import: ["": 18, "local": 1]> F (a) => (b) { b = local.F(a) }"""
    with pytest.raises(BadCheckpoint, match="calls itself"):
        anyjax.from_onnx(model(text, local=1))


def test_all_missing_operators_in_one_error():
    text = """m (float[2] x) => (float[2] y)
    { a = other.First(x) b = other.Second(a) [n3] c = other.First(b) y = Relu(c) }"""
    with pytest.raises(
        MissingOps, match=r"2 operators[\s\S]*First \(\w+, \w+\); other::Second"
    ) as error:
        anyjax.from_onnx(model(text, other=1))
    assert {*error.value.ops} == {"other::First", "other::Second"}
    assert '@anyjax.onnx.lowers("other::First")' in str(error.value)


def test_operators_on_strings_are_refused_by_name():
    text = "m (string[2] x, string[2] z) => (string[2] y) { y = StringConcat(x, z) }"
    with pytest.raises(Unsupported, match=r"operators on strings: StringConcat"):
        anyjax.from_onnx(model(text, 20))


def test_outputs_inside_of_the_graph():
    text = "m (float[2] x, float[2] z) => (float[2] y) { a = Exp(x) b = Neg(a) y = Add(b, z) }"
    converted = anyjax.from_onnx(model(text), outputs=["a", "b"])
    out = converted(np.zeros(2, np.float32))  # z is needed no more
    assert [*out] == ["a", "b"] and out["b"].tolist() == [-1, -1]
    assert anyjax.from_onnx(model(text), outputs="a")(np.zeros(2, np.float32)).tolist() == [1, 1]
    with pytest.raises(WrongArguments, match="no value 'bb'"):
        anyjax.from_onnx(model(text), outputs=["bb"])


def test_a_value_that_nothing_computes():
    text = "m (float[2] x) => (float[2] y) { y = Add(x, ghost) }"
    with pytest.raises(BadCheckpoint, match=r"nothing computes the value 'ghost'[\s\S]*node"):
        anyjax.from_onnx(model(text))(np.zeros(2, np.float32))


def test_sparse_weights():
    proto = model("m (float[2, 3] x) => (float[2, 2] y) { y = MatMul(x, w) }")
    values = onnx.numpy_helper.from_array(np.float32([2, 3]), "w")
    places = onnx.numpy_helper.from_array(np.int64([1, 4]))
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [3, 2]))
    x = normal(2, 3)
    want = x @ np.float32([[0, 2], [0, 0], [3, 0]])
    np.testing.assert_allclose(anyjax.from_onnx(proto)(x), want, rtol=1e-6)
