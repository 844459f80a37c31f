"""Transforms of features, with vectors for rows, unknown categories, NaN, and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from onnx import helper, numpy_helper

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 4)).astype(np.float32)
X[2] = 0
WHOLE = np.arange(-8, 12).reshape(5, 4)
NAN = np.where(X > 0.5, np.nan, X).astype(np.float32)


@pytest.mark.parametrize("x", [X, WHOLE], ids=["floats", "integers"])
@pytest.mark.parametrize("count", [1, 4])
def test_scaler(x, count):
    offset, scale = [0.5, -1.0, 2.0, 0.1][:count], [2.0, 0.3, 1.0, 4.0][:count]
    assert_agrees("ai.onnx.ml::Scaler", {"X": x}, offset=offset, scale=scale)


@pytest.mark.parametrize("x", [X, WHOLE], ids=["floats", "integers"])
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(x, norm):
    assert_agrees("ai.onnx.ml::Normalizer", {"X": x}, norm=norm)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_has_finite_derivatives(norm):
    model = anyjax.from_onnx(node("ai.onnx.ml::Normalizer", {"X": X[:2]}, norm=norm))
    apply = lambda x: model.apply(model.params, x)
    check_grads(apply, (X[:2],), 1, ["rev"], atol=2e-2, rtol=2e-2, eps=1e-3)
    assert jnp.isfinite(jax.grad(lambda x: apply(x).sum())(X[1:3])).all()


def test_binarizer():
    assert_agrees("ai.onnx.ml::Binarizer", {"X": X}, threshold=0.3)


@pytest.mark.parametrize("count", [1, 4])
def test_imputer(count):
    values = [1.0, 2.0, 3.0, 4.0][:count]
    how = dict(imputed_value_floats=values, replaced_value_float=float("nan"))
    assert_agrees("ai.onnx.ml::Imputer", {"X": NAN}, **how)
    how = dict(imputed_value_int64s=[7, 8, 9, 6][:count], replaced_value_int64=3)
    assert_agrees("ai.onnx.ml::Imputer", {"X": WHOLE}, **how)


@pytest.mark.parametrize("x", [X, X[0]], ids=["rows", "row"])
def test_array_feature_extractor(x):
    assert_agrees("ai.onnx.ml::ArrayFeatureExtractor", {"X": x, "Y": np.array([[2, 0]])})


@pytest.mark.parametrize("sizes", [[4, 2], [5, 3]])
def test_feature_vectorizer(sizes):
    assert_agrees("ai.onnx.ml::FeatureVectorizer", {"X": X, "Y": X[:, :3]}, inputdimensions=sizes)


@pytest.mark.parametrize("x", [WHOLE, WHOLE[1], X * 3], ids=["rows", "row", "floats"])
def test_one_hot_encoder(x):
    assert_agrees("ai.onnx.ml::OneHotEncoder", {"X": x}, cats_int64s=[0, 3, 1, -2])


def test_one_hot_encoder_refuses_to_fail_at_unknown_categories():
    model = node("ai.onnx.ml::OneHotEncoder", {"X": WHOLE}, cats_int64s=[0, 3], zeros=0)
    with pytest.raises(Unsupported, match="zeros=0"):
        anyjax.from_onnx(model)(WHOLE)


def tensor(*values):
    return numpy_helper.from_array(np.array(values))


@pytest.mark.parametrize(
    "x, how",
    [
        (WHOLE, dict(keys_int64s=[0, 3, 1, 3], values_floats=[0.5, 1.0, 2.0, 7.0])),
        (WHOLE, dict(keys_int64s=[0, 3, 1], values_int64s=[5, 4, 3], default_int64=9)),
        (NAN, dict(keys_floats=[0.0, float("nan")], values_int64s=[5, 4])),
        (
            WHOLE,
            dict(keys_tensor=tensor(1, 2), values_tensor=tensor(4, 7), default_tensor=tensor(6)),
        ),
    ],
)
def test_label_encoder(x, how):
    assert_agrees("ai.onnx.ml::LabelEncoder", {"X": x}, opsets={"ai.onnx.ml": 4}, **how)


def test_zip_map_is_a_dict_of_columns():
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["X"], ["Z"], domain="ai.onnx.ml", classlabels_int64s=[3, 1])],
        "graph",
        [helper.make_tensor_value_info("X", 1, [5, 2])],
        [helper.make_empty_tensor_value_info("Z")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    out = anyjax.from_onnx(helper.make_model(graph, opset_imports=imports))(X[:, :2])
    assert out.keys() == {3, 1} and (out[1] == X[:, 1]).all()


@pytest.mark.parametrize(
    "op, how",
    [
        ("CategoryMapper", dict(cats_int64s=[1], cats_strings=["a"])),
        ("CastMap", {}),
        ("DictVectorizer", dict(int64_vocabulary=[1])),
        ("OneHotEncoder", dict(cats_strings=["a"])),
        ("LabelEncoder", dict(keys_strings=["a"], values_int64s=[1])),
    ],
)
def test_strings_and_maps_are_refused(op, how):
    with pytest.raises(Unsupported, match=op):
        anyjax.from_onnx(node(f"ai.onnx.ml::{op}", {"X": WHOLE}, **how))(WHOLE)
