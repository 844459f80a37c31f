"""Non-maximum suppression: the best box, then the best of those that overlap it little, and so on.

A loop with a step for each box of the result; its number is known only where scores are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.suppression import LEAST, NONE, overlaps, suppress
from anyjax.stablehlo.core.static_values import known
from anyjax.tensorflow.core.schema import Static, lowers

F = np.float32


def select_boxes(similar, scores, max_output_size, *how):
    if not scores.size:
        return jnp.zeros(0, np.int32), jnp.zeros(0, scores.dtype), jnp.zeros((), np.int32)
    wide = scores.astype(F)
    indices, best, count = suppress(similar, wide, int(max_output_size), *how)
    return indices, best.astype(scores.dtype), count


def trimmed(count, *arrays):
    number = int(known(count, "how many boxes are left"))
    return [x[:number] for x in arrays]


@lowers("NonMaxSuppressionV5")
def non_max_suppression_v5(
    boxes, scores, max_output_size: Static, iou_threshold, score_threshold, soft_nms_sigma,
    pad_to_max_output_size,
):  # fmt: skip
    how = iou_threshold, score_threshold, soft_nms_sigma
    similar = lambda i: overlaps(boxes.astype(F), i)
    indices, best, count = select_boxes(similar, scores, max_output_size, *how)
    if not pad_to_max_output_size:
        indices, best = trimmed(count, indices, best)
    elif not scores.size:
        indices, best = (jnp.zeros(int(max_output_size), x.dtype) for x in (indices, best))
    return indices, best, count


@lowers("NonMaxSuppressionV4")
def non_max_suppression_v4(
    boxes, scores, max_output_size: Static, iou_threshold, score_threshold, pad_to_max_output_size
):
    how = iou_threshold, score_threshold, NONE, pad_to_max_output_size
    indices, _, count = non_max_suppression_v5(boxes, scores, max_output_size, *how)
    return indices, count


@lowers("NonMaxSuppressionV3")
def non_max_suppression_v3(boxes, scores, max_output_size: Static, iou_threshold, score_threshold):
    how = iou_threshold, score_threshold, False
    return non_max_suppression_v4(boxes, scores, max_output_size, *how)[0]


@lowers("NonMaxSuppressionV2")
def non_max_suppression_v2(boxes, scores, max_output_size: Static, iou_threshold):
    return non_max_suppression_v3(boxes, scores, max_output_size, iou_threshold, LEAST)


@lowers("NonMaxSuppression")
def non_max_suppression(boxes, scores, max_output_size: Static, iou_threshold):
    return non_max_suppression_v3(boxes, scores, max_output_size, F(iou_threshold), LEAST)


@lowers("NonMaxSuppressionWithOverlaps")
def with_overlaps(overlaps, scores, max_output_size: Static, overlap_threshold, score_threshold):
    how = overlap_threshold, score_threshold
    indices, _, count = select_boxes(lambda i: overlaps[:, i], scores, max_output_size, *how)
    return trimmed(count, indices)[0]


@lowers("CombinedNonMaxSuppression")
def combined(
    boxes, scores, max_output_size_per_class: Static, max_total_size: Static, iou_threshold,
    score_threshold, pad_per_class, clip_boxes,
):  # fmt: skip
    """Selects the best of all classes, each suppressed by itself; the shapes are always known."""
    each, total = int(max_output_size_per_class), int(max_total_size)
    total = min(total, each * scores.shape[2]) if pad_per_class else total
    how = each, total, iou_threshold, score_threshold
    best, *rest = jax.vmap(lambda *image: best_of_classes(*image, *how))(boxes, scores)
    return jnp.clip(best, 0, 1) if clip_boxes else best, *rest


def best_of_classes(boxes, scores, each, total, *how):
    """Returns (boxes, scores, classes, number of valid ones) of one image."""

    def of_class(boxes, scores):
        indices, best, count = suppress(lambda i: overlaps(boxes, i), scores, each, *how)
        return boxes[indices], jnp.where(np.arange(each) < count, best, LEAST)

    if boxes.shape[1] > 1:  # every class has its own boxes
        candidates, best = jax.vmap(of_class, 1)(boxes, scores)
    else:
        candidates, best = jax.vmap(of_class, (None, 1))(boxes[:, 0], scores)
    top, at = lax.top_k(best.ravel(), min(total, best.size))
    out = candidates.reshape(-1, 4)[at].T, top, (at // each).astype(F)
    padded = lambda x: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, total - len(at))])
    boxes, scores, classes = (padded(jnp.where(top > LEAST, x, 0)) for x in out)
    return boxes.T, scores, classes, (top > LEAST).sum(dtype=np.int32)
