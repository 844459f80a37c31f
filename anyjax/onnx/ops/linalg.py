"""Products of matrices and tensors, determinants, suppression of boxes, and steps of optimizers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import canonical
from anyjax.numerics.matmul import product
from anyjax.numerics.suppression import LEAST, overlaps, suppress
from anyjax.onnx.core.schema import Static, lowers, update
from anyjax.stablehlo.core.static_values import known


def matmul(A, B):
    """Vectors are rows at the left and columns at the right."""
    return product(A, B, False, False) if A.ndim > 1 < B.ndim else jnp.matmul(A, B)


update(
    {
        "MatMul": matmul,
        "Einsum": lambda Inputs, equation: jnp.einsum(equation.replace(" ", ""), *Inputs),
        "Det": jnp.linalg.det,
    }
)


@lowers("Gemm")
def gemm(A, B, C, alpha, beta, transA, transB):
    """Sums of integers are cut once."""
    out = product(A, B, transA, transB)
    scaled = out if alpha == 1 else out * alpha
    if C is not None and beta:
        scaled = scaled + (C if beta == 1 else C * beta)
    return scaled.astype(out.dtype)


def corners(boxes):
    """Returns boxes by their corners, of boxes by their middle and size."""
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    return jnp.concatenate([middle - half, middle + half], -1)


@lowers("NonMaxSuppression")
def non_max_suppression(
    boxes, scores, max_output_boxes_per_class: Static, iou_threshold, score_threshold,
    center_point_box,
):  # fmt: skip
    """Returns (image, class, box) of the best boxes; the number of them depends on the scores."""
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.item())
    most = min(max(most, 0), boxes.shape[1])
    if not most or not scores.size:
        return jnp.zeros((0, 3), canonical("int64"))
    overlap = jnp.float32(0) if iou_threshold is None else jnp.reshape(iou_threshold, ())
    least = LEAST if score_threshold is None else jnp.reshape(score_threshold, ())

    def of_class(boxes, scores):
        return suppress(lambda i: overlaps(boxes, i), scores, most, overlap, least)

    boxes, scores = lax.stop_gradient((corners(boxes) if center_point_box else boxes, scores))
    indices, _, count = jax.vmap(jax.vmap(of_class, (None, 0)))(boxes, scores)
    valid = np.arange(most) < known(count, "how many boxes are left")[..., None]
    image, group, rank = valid.nonzero()
    out = jnp.stack([jnp.asarray(image), jnp.asarray(group), indices[image, group, rank]], -1)
    return out.astype(canonical("int64"))


# Steps of optimizers: gradients and states follow the variables in the inputs.


def stepped(inputs, count, step):
    """Returns the results of ``step`` for each variable: all variables first, then their states."""
    size = len(inputs) // count
    operands = zip(*(inputs[i * size : (i + 1) * size] for i in range(count)))
    results = zip(*(step(*x) for x in operands))
    return tuple(value for group in results for value in group)


@lowers("ai.onnx.preview.training::Adagrad")
def adagrad(R, T, inputs, decay_factor, epsilon, norm_coefficient):
    rate = R / (1 + T * decay_factor)

    def step(x, g, h):
        g = norm_coefficient * x + g
        h = h + lax.square(g)
        return x - rate * g / (lax.sqrt(h) + epsilon), h

    return stepped(inputs, 3, step)


@lowers("ai.onnx.preview.training::Adam")
def adam(R, T, inputs, alpha, beta, epsilon, norm_coefficient, norm_coefficient_post):
    count = jnp.maximum(T, 1)
    rate = jnp.where(T > 0, R * jnp.sqrt(1 - beta**count) / (1 - alpha**count), R)

    def step(x, g, v, h):
        g = norm_coefficient * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * lax.square(g)
        x = x - rate.astype(x.dtype) * v / (lax.sqrt(h) + epsilon)
        return (1 - norm_coefficient_post) * x, v, h

    return stepped(inputs, 4, step)


@lowers("ai.onnx.preview.training::Momentum")
def momentum(R, T, inputs, alpha, beta, mode, norm_coefficient):
    """The first gradient counts as it is."""
    factor = jnp.where(T > 0, beta, 1)

    def step(x, g, v):
        g = norm_coefficient * x + g
        v = alpha * v + factor.astype(x.dtype) * g
        return x - R * (g + alpha * v if mode == "nesterov" else v), v

    return stepped(inputs, 3, step)
