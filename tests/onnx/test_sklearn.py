"""Estimators of scikit-learn and LightGBM, converted by skl2onnx and onnxmltools."""

import jax
import numpy as np
import onnx.helper
import pytest

import anyjax
from tests.onnx.with_onnxruntime import run
from tests.tolerance import assert_close

sklearn = pytest.importorskip("sklearn")
skl2onnx = pytest.importorskip("skl2onnx")
pytestmark = [
    pytest.mark.sample(every=3),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:Attribute `prob:FutureWarning"),
]

from sklearn import (  # noqa: E402
    cluster,
    decomposition,
    ensemble,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)  # fmt: skip
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

X, Y = make_classification(120, 6, n_informative=4, n_classes=3, random_state=0)
X = X.astype(np.float32)
TWO = (Y > 0).astype(int)
VALUES = (X @ np.arange(6) + np.sin(X[:, 0])).astype(np.float32)
WHOLE = np.abs(X * 2).astype(np.int64).astype(np.float32)
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X).astype(np.float32)
FEW = dict(n_estimators=5, random_state=0)
SCALED = preprocessing.StandardScaler
CLASSIFIERS = [
    make_pipeline(SCALED(), linear_model.LogisticRegression()),
    make_pipeline(decomposition.PCA(3), tree.DecisionTreeClassifier(max_depth=4)),
    ensemble.RandomForestClassifier(**FEW),
    ensemble.GradientBoostingClassifier(**FEW),
    ensemble.HistGradientBoostingClassifier(max_iter=5, random_state=0),
    ensemble.AdaBoostClassifier(**FEW),
    svm.SVC(),
    svm.LinearSVC(random_state=0),
    neighbors.KNeighborsClassifier(),
    neural_network.MLPClassifier((8,), max_iter=5, random_state=0),
    naive_bayes.GaussianNB(),
]
REGRESSORS = [
    make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
    ensemble.RandomForestRegressor(**FEW),
    ensemble.GradientBoostingRegressor(**FEW),
    ensemble.HistGradientBoostingRegressor(max_iter=5, random_state=0),
    tree.DecisionTreeRegressor(max_depth=4),
    svm.SVR(),
    neighbors.KNeighborsRegressor(),
]
TRANSFORMERS = [
    (impute.SimpleImputer(), HOLES),
    (preprocessing.Normalizer(), X),
    (preprocessing.OneHotEncoder(handle_unknown="ignore"), WHOLE),
    (preprocessing.MinMaxScaler(), X),
    (decomposition.PCA(3), X),
    (cluster.KMeans(3, n_init=1, random_state=0), X),
    (ensemble.IsolationForest(**FEW), X),
    (svm.OneClassSVM(), X),
]
OPSETS = {"": 18, "ai.onnx.ml": 3}


@pytest.fixture(autouse=True)
def plain_integers(monkeypatch):
    """skl2onnx gives numpy's integers as attributes, which the package onnx refuses."""
    make = onnx.helper.make_attribute
    plain = lambda x: [int(y) if isinstance(y, (np.integer, bool)) else y for y in x]
    monkeypatch.setattr(
        onnx.helper,
        "make_attribute",
        lambda key, value, *rest, **how: make(
            key, plain(value) if isinstance(value, list) else value, *rest, **how
        ),
    )


def name_of(estimator):
    return type(estimator[-1] if hasattr(estimator, "steps") else estimator).__name__


def assert_same(model, x):
    """Compares labels and scores; a dict of columns stands for a list of dicts."""
    want = run(model, {model.graph.input[0].name: x})
    converted = anyjax.from_onnx(model)
    got = jax.tree.leaves(jax.jit(converted)(x))
    if isinstance(want[-1], list):
        want[-1:] = [np.float32([row[key] for row in want[-1]]) for key in want[-1][0]]
    got = [np.asarray(x).astype(w.dtype) for x, w in zip(got, want, strict=True)]
    assert_close(got, want, reduction=256)


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name_of)
@pytest.mark.parametrize("labels", [Y, TWO], ids=["three", "two"])
def test_classifiers(estimator, labels):
    estimator.fit(X, labels)
    assert_same(skl2onnx.to_onnx(estimator, X[:1], target_opset=OPSETS), X)


@pytest.mark.parametrize("estimator", REGRESSORS, ids=name_of)
def test_regressors(estimator):
    estimator.fit(X, VALUES)
    assert_same(skl2onnx.to_onnx(estimator, X[:1], target_opset=OPSETS), X)


@pytest.mark.parametrize("estimator, x", TRANSFORMERS, ids=lambda x: name_of(x))
def test_transformers(estimator, x):
    assert_same(skl2onnx.to_onnx(estimator.fit(x), x[:1], target_opset=OPSETS), x)


def test_probabilities_of_a_classifier_of_strings():
    estimator = ensemble.RandomForestClassifier(**FEW).fit(X, np.array(["a", "b", "c"])[Y])
    options = {type(estimator): {"zipmap": False}}
    model = skl2onnx.to_onnx(estimator, X[:1], options=options, target_opset=OPSETS)
    got = anyjax.from_onnx(model, outputs=["probabilities"])(X)
    assert_close(np.asarray(got), run(model, {"X": X})[1], reduction=16)


@pytest.mark.parametrize("labels", [Y, TWO, VALUES], ids=["three", "two", "regression"])
def test_lightgbm(labels):
    lightgbm = pytest.importorskip("lightgbm")
    onnxmltools = pytest.importorskip("onnxmltools")
    kind = lightgbm.LGBMRegressor if labels is VALUES else lightgbm.LGBMClassifier
    estimator = kind(n_estimators=5, min_child_samples=5, verbose=-1).fit(HOLES, labels)
    types = [("X", onnxmltools.convert.common.data_types.FloatTensorType([None, 6]))]
    model = onnxmltools.convert_lightgbm(estimator, initial_types=types, target_opset=15)
    assert_same(model, HOLES)
