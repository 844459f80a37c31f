"""Linear models and support vector machines, and their gradients for the features."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 4)).astype(np.float32)
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def floats(count):
    return RNG.standard_normal(count).astype(np.float32).tolist()


def machine(classes, kernel):
    count = [3, 2, 4, 1][:classes]
    vectors, pairs = sum(count), classes * (classes - 1) // 2
    return dict(
        classlabels_ints=[4, 6, 1, 9][:classes],
        coefficients=floats(vectors * (classes - 1)),
        kernel_params=[0.3, 0.4, 3.0],
        kernel_type=kernel,
        rho=floats(pairs),
        support_vectors=floats(4 * vectors),
        vectors_per_class=count,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_linear_classifier(dtype):
    assert_agrees(
        "ai.onnx.ml::LinearClassifier",
        {"X": (3 * X).astype(dtype)},
        2,
        coefficients=floats(12),
        intercepts=floats(3),
        classlabels_ints=[5, 3, 9],
        post_transform="SOFTMAX",
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel, one_class):
    assert_agrees(
        "ai.onnx.ml::SVMRegressor",
        {"X": X},
        reduction=64,
        coefficients=floats(6),
        kernel_params=[0.3, 0.4, 2.5 if kernel == "LINEAR" else 3.0],
        kernel_type=kernel,
        n_supports=6,
        rho=[0.3],
        support_vectors=floats(24),
        one_class=one_class,
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 4])
def test_svm_classifier(kernel, classes):
    how = machine(classes, kernel)
    assert_agrees("ai.onnx.ml::SVMClassifier", {"X": X}, 2, reduction=256, **how)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_svm_classifier_with_probabilities(classes):
    pairs = classes * (classes - 1) // 2
    how = machine(classes, "RBF") | dict(prob_a=floats(pairs), prob_b=floats(pairs))
    assert_agrees("ai.onnx.ml::SVMClassifier", {"X": X}, 2, reduction=256, **how)


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX"])
def test_svm_classifier_with_a_transform(transform):
    how = machine(2, "LINEAR") | dict(post_transform=transform)
    assert_agrees("ai.onnx.ml::SVMClassifier", {"X": X}, 2, reduction=256, **how)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_svm(classes, sign):
    coefficients = (sign * np.abs(floats(4 * classes))).tolist()
    how = dict(coefficients=coefficients, rho=[0.3], kernel_params=[0.0, 0.0, 0.0])
    labels = [4, 6, 1][:classes]
    assert_agrees("ai.onnx.ml::SVMClassifier", {"X": X}, 2, classlabels_ints=labels, **how)


def test_svm_regressor_with_a_transform_is_refused():
    how = dict(coefficients=floats(4), rho=[0.3], n_supports=0, post_transform="LOGISTIC")
    with pytest.raises(Unsupported, match="post_transform LOGISTIC"):
        anyjax.from_onnx(node("ai.onnx.ml::SVMRegressor", {"X": X}, **how))(X)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(kernel):
    model = node("ai.onnx.ml::SVMClassifier", {"X": X}, 2, **machine(3, kernel))
    scores = anyjax.from_onnx(model, outputs=["out1"])
    apply = lambda x: scores.apply(scores.params, x)
    check_grads(apply, (X,), 1, ["rev"], atol=3e-2, rtol=3e-2, eps=1e-2)
    assert jax.vmap(apply)(X[None]).shape == (1, 7, 3)
