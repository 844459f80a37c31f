"""Scores of classifiers: what onnxruntime does with them, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.stats import norm

from anyjax import from_onnx
from anyjax.errors import Unsupported
from anyjax.onnx.ops import ml_scores
from tests.onnx.with_onnxruntime import assert_agrees, node
from tests.tolerance import assert_close

X = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)
X[1] = 0


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("targets", [1, 3])
def test_transforms(transform, targets):
    assert_agrees(
        "ai.onnx.ml::LinearRegressor",
        {"X": X},
        reduction=64,
        coefficients=np.linspace(0.01, 0.05, 4 * targets).tolist(),
        intercepts=[0.25, 0.3, 0.8][-targets:],
        targets=targets,
        post_transform=transform,
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_one_score_of_two_classes(transform):
    assert_agrees(
        "ai.onnx.ml::LinearClassifier",
        {"X": X},
        2,
        coefficients=[0.3, -1.0, 2.0, 0.5],
        intercepts=[0.1],
        classlabels_ints=[7, 3],
        post_transform=transform,
    )


def test_probit_of_one_score_of_two_classes_is_refused():
    how = dict(coefficients=[0.1] * 4, intercepts=[0.5], classlabels_ints=[0, 1])
    model = node("ai.onnx.ml::LinearClassifier", {"X": X}, 2, post_transform="PROBIT", **how)
    with pytest.raises(Unsupported, match="PROBIT of two classes"):
        from_onnx(model)(X)


def test_probit_is_close_to_the_quantiles_of_the_normal_distribution():
    p = jnp.array([0.01, 0.3, 0.5, 0.9])
    assert_close(ml_scores.probit(p), norm.ppf(p).astype(np.float32), rtol=5e-3)
    assert_close(
        jax.vmap(jax.grad(ml_scores.probit))(p),
        (1 / norm.pdf(ml_scores.probit(p))).astype(np.float32),
        reduction=16,
    )


def test_softmax_zero_has_derivatives():
    check_grads(ml_scores.softmax_zero, (jnp.array([[0.5, -1.0, 2.0]]),), 1, atol=1e-2, rtol=1e-2)


def test_labels_that_are_strings_are_refused_where_they_are_used():
    how = dict(coefficients=[0.1] * 8, intercepts=[0.5, 0.2], classlabels_strings=["no", "yes"])
    model = node("ai.onnx.ml::LinearClassifier", {"X": X}, 2, **how)
    with pytest.raises(Unsupported, match=r"labels that are strings.*\n(.*\n)*.*outputs="):
        from_onnx(model)(X)
    assert from_onnx(model, outputs=["out1"])(X).shape == (5, 2)
