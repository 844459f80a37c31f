"""Linear models and support vector machines of ``ai.onnx.ml``; they compute in float32."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.ml_scores import both_classes, labels, rows_of, transformed


def matrix(values, rows):
    return jnp.asarray(np.asarray(values, np.float32).reshape(rows, -1))


@lowers("ai.onnx.ml::LinearRegressor")
def linear_regressor(X, coefficients, intercepts, post_transform, targets):
    scores = rows_of(X) @ matrix(coefficients, targets).T
    if intercepts:
        scores += jnp.asarray(intercepts, np.float32)
    return transformed(scores, post_transform)


@lowers("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    X, classlabels_ints, classlabels_strings, coefficients, intercepts, multi_class, post_transform
):
    classes = classlabels_strings or classlabels_ints
    count = len(intercepts) if intercepts else len(classes)
    scores = rows_of(X) @ matrix(coefficients, count).T
    if intercepts:
        scores += jnp.asarray(intercepts, np.float32)
    if count > 1:
        index = scores.argmax(-1)
        return labels(index, classlabels_ints, classlabels_strings), transformed(
            scores, post_transform
        )
    index = (scores[:, 0] > 0).astype(np.int32)
    if len(classes) != 2:
        return labels(index, (0, 1), classlabels_strings), transformed(scores, post_transform)
    pair = both_classes(scores[:, 0], post_transform, complement=True)
    return labels(index, classlabels_ints, classlabels_strings), pair


def kernel(X, vectors, kernel_type, kernel_params, constant=0.0):
    """Returns the kernel of each row with each vector, ``[rows, vectors]``."""
    gamma, coef0, degree = kernel_params or (0.0, 0.0, 0.0)
    if kernel_type == "RBF":
        return jnp.exp(-gamma * ((X[:, None] - vectors) ** 2).sum(-1))
    products = X @ vectors.T
    if kernel_type == "LINEAR":
        return products + constant
    shifted = gamma * products + coef0
    if kernel_type == "SIGMOID":
        return jnp.tanh(shifted)
    return lax.integer_pow(shifted, int(degree)) if degree == int(degree) else shifted**degree


@lowers("ai.onnx.ml::SVMRegressor")
def svm_regressor(
    X, coefficients, kernel_params, kernel_type, n_supports, one_class, post_transform, rho,
    support_vectors,
):  # fmt: skip
    if post_transform != "NONE":
        raise Unsupported(
            f"SVMRegressor with post_transform {post_transform}",
            why="onnxruntime leaves it out, ONNX does not",
            do="write it as an operator of its own behind this one",
        )
    X = rows_of(X)
    if n_supports:
        values = kernel(X, matrix(support_vectors, n_supports), kernel_type, kernel_params)
        scores = values @ matrix(coefficients, n_supports) + rho[0]
    else:
        scores = kernel(X, matrix(coefficients, 1), "LINEAR", None, rho[0])
    return jnp.where(scores > 0, np.float32(1), np.float32(-1)) if one_class else scores


@lowers("ai.onnx.ml::SVMClassifier")
def svm_classifier(
    X, classlabels_ints, classlabels_strings, coefficients, kernel_params, kernel_type,
    post_transform, prob_a, prob_b, rho, support_vectors, vectors_per_class,
):  # fmt: skip
    X, classes = rows_of(X), len(classlabels_strings or classlabels_ints)
    if vectors_per_class:
        vectors = matrix(support_vectors, sum(vectors_per_class))
        values = kernel(X, vectors, kernel_type, kernel_params)
        scores = values @ of_pairs(coefficients, vectors_per_class) + jnp.asarray(rho, np.float32)
        index = votes(scores, classes).argmax(-1)
    else:
        scores = kernel(X, matrix(coefficients, classes), "LINEAR", None, rho[0])
        index = best(scores, min(coefficients) >= 0)
    if vectors_per_class and prob_a:
        scores = coupled(pair_chances(scores, prob_a, prob_b, classes), classes)
    if scores.shape[1] == 1:
        scores = both_classes(scores[:, 0], post_transform, post_transform != "NONE")
    else:
        scores = transformed(scores, post_transform)
    return labels(index, classlabels_ints, classlabels_strings), scores


def best(scores, positive):
    """Returns the best class of each row; of two, the second where it or the first is above a
    bound, which is 0.5 if no coefficient is negative.
    """
    if scores.shape[1] != 2:
        return scores.argmax(-1)
    top = scores.max(-1)
    return jnp.where(top >= 0.5 if positive else top > 0, 1, scores.argmax(-1))


def of_pairs(coefficients, vectors_per_class):
    """Returns the coefficients of all vectors for each pair of classes, ``[vectors, pairs]``.

    A vector has a coefficient for each class other than its own.
    """
    classes, ends = len(vectors_per_class), np.cumsum(vectors_per_class)
    table = np.asarray(coefficients, np.float32).reshape(classes - 1, -1)
    of = [slice(end - count, end) for count, end in zip(vectors_per_class, ends)]
    pairs = list(combinations(range(classes), 2))
    out = np.zeros((table.shape[1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        out[of[i], column] = table[j - 1, of[i]]
        out[of[j], column] = table[i, of[j]]
    return jnp.asarray(out)


def votes(scores, classes):
    """Returns how many pairs each class wins."""
    pairs = combinations(range(classes), 2)
    first, second = np.eye(classes, dtype=np.int32)[np.array(list(pairs)).T]
    return jnp.where(scores[..., None] > 0, first, second).sum(1)


def pair_chances(scores, prob_a, prob_b, classes):
    """Returns the chance that class i wins against class j, ``[rows, i, j]``; 0 on the diagonal."""
    a, b = jnp.asarray(prob_a, np.float32), jnp.asarray(prob_b, np.float32)
    wins = jax.nn.sigmoid(-(scores * a + b)).clip(1e-7, 1 - 1e-7)
    i, j = np.array(list(combinations(range(classes), 2))).T
    chances = jnp.zeros((scores.shape[0], classes, classes), np.float32)
    return chances.at[:, i, j].set(wins).at[:, j, i].set(1 - wins)


def coupled(chances, classes):
    """Returns the chances of the classes from those of their pairs, as libsvm's iteration does.

    A row stops once it has settled.
    """
    eye, lost = np.eye(classes, dtype=np.float32), jnp.swapaxes(chances, 1, 2)
    diagonal = (lost**2).sum(-1)
    Q = jnp.where(eye == 0, -lost * chances, diagonal[:, :, None] * eye)

    def sweep(_, p):
        Qp = jnp.einsum("nij,nj->ni", Q, p)
        pQp = (p * Qp).sum(-1, keepdims=True)
        settled = jnp.abs(Qp - pQp).max(-1, keepdims=True) < 0.005 / classes
        q = p
        for i in range(classes):
            step = (pQp - Qp[:, i, None]) / diagonal[:, i, None]
            scale = 1 + step
            pQp = (pQp + step * (step * diagonal[:, i, None] + 2 * Qp[:, i, None])) / scale**2
            Qp = (Qp + step * Q[:, i]) / scale
            q = q.at[:, i].add(step[:, 0]) / scale
        return jnp.where(settled, p, q)

    start = jnp.full(chances.shape[:2], np.float32(1 / classes))
    return lax.fori_loop(0, 100, sweep, start)
