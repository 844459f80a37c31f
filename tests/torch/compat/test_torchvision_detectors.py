"""What detectors do with their boxes, for any number of them (proof/cases/images.py has the
detectors themselves).
"""

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import anyjax
from anyjax.torch.compat import torchvision_detectors as detectors
from tests.tolerance import assert_close
from tests.torch.ops.test_extensions import nms

RNG = np.random.default_rng(0)
CORNERS = RNG.integers(0, 8, (30, 2))
BOXES = np.concatenate([CORNERS, CORNERS + RNG.integers(1, 9, (30, 2))], 1).astype(np.float32)
SCORES, KINDS = RNG.permutation(30).astype(np.float32), RNG.integers(0, 3, 30)


@pytest.mark.parametrize("least", [-1, 12, 99])
def test_boxes_of_each_class(least):
    def forward(boxes, scores, kinds):
        rows = scores > least
        return detectors.batched_nms(None, boxes[rows], scores[rows], kinds[rows], 0.3)

    rows = least < SCORES
    want = []
    for kind in range(3):
        (places,) = np.nonzero(KINDS[rows] == kind)
        want += [*places[nms(BOXES[rows][places], SCORES[rows][places], 0.3)]]
    want.sort(key=lambda i: -SCORES[rows][i])
    got = jax.jit(anyjax.from_torch(forward).apply)({}, BOXES, SCORES, KINDS)
    assert got.values[: int(got.length)].tolist() == want


def pasted(masks, boxes, height, width):
    """Resizes each mask and puts it where its box is, as far as that lies in the image."""
    out = torch.zeros(len(masks), height, width)
    for image, mask, (left, top, right, bottom) in zip(out, masks, boxes.tolist()):
        size = max(bottom - top + 1, 1), max(right - left + 1, 1)
        large = F.interpolate(mask[None, None], size, mode="bilinear", align_corners=False)[0, 0]
        rows = slice(max(top, 0), min(bottom + 1, height))
        columns = slice(max(left, 0), min(right + 1, width))
        image[rows, columns] = large[
            rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
        ]
    return out


def test_masks_put_where_their_boxes_are():
    masks = torch.from_numpy(RNG.random((4, 6, 6)).astype(np.float32))
    boxes = torch.tensor([[1, 2, 9, 6], [-3, -2, 4, 20], [3, 3, 3, 3], [5, 1, 30, 3]])

    def forward(masks, boxes):
        rows = detectors.interpolation(boxes[:, 1], boxes[:, 3], 6, 12, masks.dtype)
        columns = detectors.interpolation(boxes[:, 0], boxes[:, 2], 6, 16, masks.dtype)
        return rows @ masks @ columns.transpose(1, 2)

    got = anyjax.from_torch(forward)(masks.numpy(), boxes.numpy())
    assert_close(got, pasted(masks, boxes, 12, 16).numpy(), rtol=1e-5)
