"""Boxes and masks of torchvision's detectors, of which there are as many as values decide."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import private
from anyjax.torch.core.lifting import is_traced


@replaces(private.BATCHED_NMS)
def batched_nms(original, boxes, scores, idxs, iou_threshold):
    """Leaves out boxes that a better one of their class overlaps, of which there may be none.

    torchvision shifts the boxes of each class to a place of their own, or takes the classes one by
    one; which of the two depends on the number of boxes.
    """
    if not any(map(is_traced, (boxes, scores, idxs))):
        return original(boxes, scores, idxs, iou_threshold)
    wide = torch.promote_types(boxes.dtype, torch.float32)  # bfloat16 has no class 257
    rows = torch.cat([boxes.to(wide), idxs[:, None].to(wide)], 1)
    return torch.ops.torchvision.nms(rows, scores, iou_threshold)


@replaces(private.DECODED_BOXES)
def decode(original, self, rel_codes, boxes):
    """Returns the boxes [N, classes, 4] of offsets from others, also where there are none: of them
    torchvision leaves the shape as it is.
    """
    if not is_traced(rel_codes):
        return original(self, rel_codes, boxes)
    out = self.decode_single(rel_codes, torch.cat(boxes))
    return out.reshape(out.shape[0], out.shape[1] // 4, 4)


@replaces(private.PASTED_MASKS)
def paste_masks_in_image(original, masks, boxes, img_shape: Sequence[int], padding: int = 1):
    """Resizes masks [N, 1, M, M] to their boxes, and puts each into an image of its own,
    [N, 1, height, width]: as products with the weights of linear interpolation.
    """
    if not any(map(is_traced, (masks, boxes))):
        return original(masks, boxes, img_shape, padding)
    heads = sys.modules["torchvision.models.detection.roi_heads"]
    masks, scale = heads.expand_masks(masks, padding)
    boxes = heads.expand_boxes(boxes, scale).to(torch.int64)
    rows, columns = (
        interpolation(boxes[:, i], boxes[:, i + 2], masks.shape[-1], length, masks.dtype)
        for i, length in zip((1, 0), img_shape)
    )
    return (rows @ masks[:, 0] @ columns.transpose(1, 2))[:, None]


def interpolation(
    start: torch.Tensor, end: torch.Tensor, count: int, length: int, dtype: torch.dtype
) -> torch.Tensor:
    """Returns weights [N, length, count] of ``count`` elements that lie from ``start`` to ``end``,
    both of them pixels among ``length``; outside they are zero.
    """
    start, end = start[:, None], end[:, None]
    pixels, size = torch.arange(length), (end - start + 1).clamp(min=1)
    place = (pixels - start + 0.5) * (count / size.to(dtype)) - 0.5
    place = place.clamp(0, count - 1)
    near = (1 - (place[..., None] - torch.arange(count)).abs()).clamp(min=0)
    return near * ((pixels >= start) & (pixels <= end))[..., None]
