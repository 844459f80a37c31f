"""Non-maximum suppression: padded under jit, exact outside, soft, of several classes."""

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.errors import DataDependent
from tests.tensorflow.agree import assert_agrees
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

RNG = np.random.default_rng(1)
CORNER = RNG.random((12, 2)) * 3
BOXES = np.concatenate([CORNER, CORNER + RNG.random((12, 2)) + 0.7], 1).astype(np.float32)
BOXES[3] = BOXES[3][[2, 3, 0, 1]]  # flipped
BOXES[5, 2:] = BOXES[5, :2]  # empty
SCORES = RNG.random(12).astype(np.float32)
SCORES[7] = SCORES[2]  # a tie
raw = tf.raw_ops


@pytest.mark.parametrize("size, least", [(3, -np.inf), (20, 0.3)])
@pytest.mark.parametrize("sigma", [0.0, 0.4])
def test_padded(size, least, sigma):
    how = {"max_output_size": size, "iou_threshold": 0.2, "score_threshold": least}
    run = lambda b, s: raw.NonMaxSuppressionV5(
        boxes=b, scores=s, soft_nms_sigma=sigma, pad_to_max_output_size=True, **how
    )
    assert_agrees(run, BOXES, SCORES, grad=False, vmap=sigma == 0)


def test_padded_of_tf_image():
    how = {"max_output_size": 3, "iou_threshold": 0.3, "pad_to_max_output_size": True}
    run = lambda b, s: tf.compat.v1.image.non_max_suppression_padded(b, s, **how)
    assert_agrees(run, BOXES, SCORES, grad=False, vmap=False)
    run = lambda b, s: tf.image.non_max_suppression_padded(b, s, **how)
    assert_agrees(run, BOXES, SCORES, grad=False, vmap=False)


def assert_same_boxes(run, *args):
    """Outside of jit the number of boxes is known; inside it is not."""
    model = anyjax.from_tensorflow(run, *args)
    want = [x.numpy() for x in tf.nest.flatten(run(*args))]
    got = model.apply(model.params, *map(np.array, args))
    assert_close(list(got) if isinstance(got, (tuple, list)) else [got], want, reduction=4)
    with pytest.raises(DataDependent, match="how many boxes"):
        model(*args)
    got = model.apply(model.params, *map(jnp.asarray, args))
    assert_close(list(got) if isinstance(got, (tuple, list)) else [got], want, reduction=4)


@pytest.mark.parametrize(
    "run",
    [
        lambda b, s: tf.image.non_max_suppression(b, s, 5, 0.3),
        lambda b, s: tf.image.non_max_suppression(b, s, 50, 0.3, 0.4),
        lambda b, s: tf.image.non_max_suppression_with_scores(b, s, 9, 0.3, 0.2, 0.5),
        lambda b, s: raw.NonMaxSuppression(boxes=b, scores=s, max_output_size=4),
        lambda b, s: raw.NonMaxSuppressionV2(
            boxes=b, scores=s, max_output_size=4, iou_threshold=0.1
        ),
        lambda b, s: raw.NonMaxSuppressionV4(
            boxes=b, scores=s, max_output_size=9, iou_threshold=0.1, score_threshold=0.3
        ),
    ],
)
def test_exact(run):
    assert_same_boxes(run, BOXES, SCORES)


def test_given_overlaps():
    overlaps = RNG.random((12, 12)).astype(np.float32)
    assert_same_boxes(
        lambda o, s: tf.image.non_max_suppression_overlaps(o, s, 6, 0.5, 0.1), overlaps, SCORES
    )


def test_no_boxes():
    run = lambda b, s: raw.NonMaxSuppressionV4(
        boxes=b, scores=s, max_output_size=3, iou_threshold=0.5, score_threshold=0.0,
        pad_to_max_output_size=True,
    )  # fmt: skip
    assert_agrees(run, BOXES[:0], SCORES[:0], grad=False, vmap=False)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "pad, clip, total", [(False, True, 7), (True, False, 30), (False, False, 40)]
)
def test_combined(shared, pad, clip, total):
    boxes = np.stack([BOXES, BOXES[::-1]])[:, :, None] / 4
    boxes = boxes if shared else np.concatenate([boxes, boxes * 0.9, boxes * 0.5], 2)
    scores = RNG.random((2, 12, 3)).astype(np.float32)
    run = lambda b, s: tf.image.combined_non_max_suppression(
        b, s, 4, total, 0.3, 0.2, pad_per_class=pad, clip_boxes=clip
    )
    assert_agrees(run, boxes, scores, grad=False)
