"""Operators of libraries that are not here, by their schemas; code below says what they do."""

import itertools
import math

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent, Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

REGION = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
SCHEMAS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::roi_align": f"({REGION}, int sampling_ratio, bool aligned) -> Tensor",
    "torchvision::roi_pool": f"({REGION}) -> (Tensor, Tensor)",
    "torchvision::ps_roi_align": f"({REGION}, int sampling_ratio) -> (Tensor, Tensor)",
    "torchvision::deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor"
    " bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h,"
    " SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
    "torchaudio::forced_align": "(Tensor log_probs, Tensor targets, Tensor input_lengths,"
    " Tensor target_lengths, int blank) -> (Tensor, Tensor)",
}
for name, schema in SCHEMAS.items():
    torch.library.define(name, schema)
vision, audio = torch.ops.torchvision, torch.ops.torchaudio

RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
IMAGES = normal(2, 12, 9, 11)
# Inside, beyond each end, without extent, turned around, as large as the image twice over.
ROIS = np.float32([[0, 1.3, 2.1, 7.7, 6.2], [1, -3, -2.5, 5, 12], [0, 4, 4, 4, 4],
                   [1, 9, 7, 3, 2], [1, -9, -9, 25, 20], [0, 40, 40, 50, 50]])  # fmt: skip


def assert_same(op, reference, arrays, *rest, places=(0,)):
    """Values of all results, and gradients of the first, for the arrays at ``places``."""
    tensors = [torch.tensor(a) for a in arrays]
    for i in places:
        tensors[i].requires_grad_()
    want = reference(*tensors, *rest)
    first = want[0] if isinstance(want, tuple) else want
    weight = np.cos(np.arange(first.numel(), dtype=np.float32)).reshape(first.shape)
    grads = torch.autograd.grad((first * torch.tensor(weight)).sum(), [tensors[i] for i in places])
    model = anyjax.from_torch(lambda *tensors: op(*tensors, *rest))

    def loss(chosen):
        full = list(arrays)
        for i, x in zip(places, chosen, strict=True):
            full[i] = x
        out = model.apply({}, *full)
        return ((out[0] if isinstance(out, tuple) else out) * weight).sum(), out

    got_grads, got = jax.jit(jax.grad(loss, has_aux=True))([arrays[i] for i in places])
    assert_close(got, want, reduction=64)
    assert_close(got_grads, list(grads), reduction=1024)


def bilinear(plane, y, x, at_edge):
    """One value. ``at_edge``: up to one element beyond, the edge counts; otherwise zeros do."""
    height, width = plane.shape
    y, x = torch.as_tensor(y), torch.as_tensor(x)
    if at_edge:
        if not (-1 <= y <= height and -1 <= x <= width):
            return torch.zeros(())
        y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    total = torch.zeros(())
    for i, j in itertools.product((y.floor(), y.floor() + 1), (x.floor(), x.floor() + 1)):
        if 0 <= i < height and 0 <= j < width:
            total = total + plane[int(i), int(j)] * (1 - (y - i).abs()) * (1 - (x - j).abs())
    return total


def sampled(input, rois, scale, height, width, ratio, shift, shortest, own_channels):
    """Both kinds of roi_align, one bin after another."""
    out, channels = [], input.shape[1] // (height * width if own_channels else 1)
    for roi, c, i, j in itertools.product(rois, range(channels), range(height), range(width)):
        x0, y0, x1, y1 = (roi[1:] * scale - shift).tolist()
        high, wide = (max(y1 - y0, shortest) / height, max(x1 - x0, shortest) / width)
        ny, nx = (ratio, ratio) if ratio > 0 else (math.ceil(high), math.ceil(wide))
        plane = input[int(roi[0]), (c * height + i) * width + j if own_channels else c]
        points = itertools.product(
            [y0 + (i + (k + 0.5) / ny) * high for k in range(ny)],
            [x0 + (j + (k + 0.5) / nx) * wide for k in range(nx)],
        )
        values = [bilinear(plane, y, x, at_edge=True) for y, x in points]
        count = ny * nx if own_channels else max(ny * nx, 1)
        out.append(sum(values, torch.zeros(())) / count)
    return torch.stack(out).reshape(len(rois), channels, height, width)


def roi_align(input, rois, scale, height, width, ratio, aligned):
    shift, shortest = (0.5, -math.inf) if aligned else (0, 1)
    return sampled(input, rois, scale, height, width, ratio, shift, shortest, False)


def ps_roi_align(input, rois, scale, height, width, ratio):
    out = sampled(input, rois, scale, height, width, ratio, 0.5, -math.inf, True)
    mapping = torch.arange(input.shape[1], dtype=torch.int32).reshape(out.shape[1:])
    return out, mapping.expand(out.shape)


def places_of(start, end, bins, length):
    """The places in each bin along one axis."""
    away = lambda v: int(math.copysign(math.floor(abs(v) + 0.5), v))
    first = away(start)
    step = np.float32(max(away(end) - first + 1, 1)) / np.float32(bins)
    ranges = [range(math.floor(i * step), math.ceil((i + 1) * step)) for i in range(bins)]
    return [[k + first for k in r if 0 <= k + first < length] for r in ranges]


def roi_pool(input, rois, scale, height, width):
    out, places, size = [], [], input.shape[2:]
    for roi, c in itertools.product(rois, range(input.shape[1])):
        x0, y0, x1, y1 = (roi[1:] * scale).tolist()
        bins = places_of(y0, y1, height, size[0]), places_of(x0, x1, width, size[1])
        plane = input[int(roi[0]), c]
        for rows, columns in itertools.product(*bins):
            cells = [at for at in itertools.product(rows, columns) if not plane[at].isnan()]
            best = max(cells, key=lambda at: plane[at].item(), default=None)
            out.append(torch.zeros(()) if best is None else plane[best])
            places.append(-1 if best is None else best[0] * size[1] + best[1])
    shape = len(rois), input.shape[1], height, width
    return torch.stack(out).reshape(shape), torch.tensor(places, dtype=torch.int32).reshape(shape)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_roi_align(aligned, scale):
    assert_same(vision.roi_align, roi_align, (IMAGES[:, :1], ROIS), scale, 2, 3, 2, aligned)


def test_ps_roi_align():
    assert_same(vision.ps_roi_align, ps_roi_align, (IMAGES, ROIS), 0.7, 2, 3, 2)


@pytest.mark.parametrize("bins", [(2, 3), (7, 7)])
def test_roi_pool(bins):
    ties = np.round(IMAGES[:, :2])
    rois = torch.tensor(ROIS)
    op = lambda x, *rest: vision.roi_pool(x, rois, *rest)
    assert_same(op, lambda x, *rest: roi_pool(x, rois, *rest), (ties,), 0.5, *bins)
    model = anyjax.from_torch(lambda *arrays: vision.roi_pool(*arrays, 1.0, *bins))
    want = roi_pool(torch.tensor(IMAGES[:, :2]), torch.tensor(ROIS[:3]), 1.0, *bins)
    assert_close(model(IMAGES[:, :2], ROIS[:3]), want)


def test_as_many_samples_as_a_region_is_large_needs_its_values():
    function = lambda x, rois: vision.roi_align(x, rois, 0.5, 2, 3, -1, True)
    model = anyjax.from_torch(function)
    tensors = torch.tensor(IMAGES[:, :1], requires_grad=True), torch.tensor(ROIS)
    want = roi_align(*tensors, 0.5, 2, 3, -1, True)
    (want**2).sum().backward()
    loss = lambda x: (model.apply({}, x, ROIS) ** 2).sum()
    assert_close(model.apply({}, IMAGES[:, :1], ROIS), want, reduction=64)
    assert_close(jax.grad(loss)(IMAGES[:, :1]), tensors[0].grad, reduction=1024)
    with pytest.raises(DataDependent, match="roi_align"):
        jax.jit(lambda *arrays: model.apply({}, *arrays))(IMAGES, ROIS)


def test_no_regions():
    def every(x, rois):
        pooled = vision.roi_pool(x, rois, 1.0, 2, 3)
        means = [vision.roi_align(x, rois, 1.0, 2, 3, n, True) for n in (2, -1)]
        return *means, *pooled, *vision.ps_roi_align(x, rois, 1.0, 2, 3, 2)

    got = anyjax.from_torch(every).apply({}, IMAGES, ROIS[:0])
    assert [x.shape for x in got] == [(0, 12, 2, 3)] * 4 + [(0, 2, 2, 3)] * 2


def nms(boxes, scores, limit):
    """The best box, then again among those that overlap it little."""
    left, out = sorted(range(len(boxes)), key=lambda i: -scores[i]), []
    size = lambda b: (b[2] - b[0]) * (b[3] - b[1])
    while left:
        out.append(first := left.pop(0))
        a, stay = boxes[first], []
        for i in left:
            b = boxes[i]
            sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
            shared = sides[0] * sides[1]
            if not float(shared / (size(a) + size(b) - shared)) > limit:
                stay.append(i)
        left = stay
    return np.array(out, np.int32)


@pytest.mark.parametrize("limit", [0.0, 0.3, 0.5, 0.9])
def test_nms(limit):
    corner = RNG.integers(0, 8, (40, 2))
    boxes = np.concatenate([corner, corner + RNG.integers(1, 9, (40, 2))], 1).astype(np.float32)
    boxes[:2] = [[0, 0, 10, 1], [0, 0, 3, 1]]  # they overlap by 0.3 in float32, which is more
    scores = np.round(RNG.random(40), 1).astype(np.float32)
    model = anyjax.from_torch(lambda *tensors: vision.nms(*tensors, limit))
    assert_close(model.apply({}, boxes, scores), nms(boxes, scores, limit))
    assert_close(model.apply({}, boxes[:2], scores[:2]), nms(boxes[:2], scores[:2], limit))
    assert model.apply({}, boxes[:0], scores[:0]).shape == (0,)
    counted = jax.jit(lambda *arrays: model.apply({}, *arrays))(boxes, scores)
    assert_close(counted.values[: int(counted.length)], nms(boxes, scores, limit))


def test_gradients_pass_the_boxes_that_stay():
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 2.1], [3, 3, 5, 5]], np.float32)
    scores = np.array([0.5, 0.9, 0.1], np.float32)
    model = anyjax.from_torch(lambda b, s: b[vision.nms(b, s, 0.5)])
    got = jax.grad(lambda b: model.apply({}, b, scores).values.sum())(boxes)
    assert_close(got, np.float32([[0] * 4, [1] * 4, [1] * 4]))


def deform_conv2d(x, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, shifts, use_mask):
    out = []
    (n, channels), (ny, nx) = x.shape[:2], weight.shape[2:]
    offset = offset.reshape(n, shifts, ny, nx, 2, *offset.shape[2:])
    mask = mask.reshape(n, shifts, ny, nx, *mask.shape[2:])
    each, height, width = weight.shape[1], *offset.shape[5:]
    for b, o, i, j in itertools.product(*map(range, (n, len(weight), height, width))):
        total = bias[o]
        for c, k, m in itertools.product(range(each), range(ny), range(nx)):
            channel = o // (len(weight) // groups) * each + c
            at = b, channel // (channels // shifts), k, m
            y = i * sh - ph + k * dh + offset[*at, 0, i, j]
            value = bilinear(x[b, channel], y, j * sw - pw + m * dw + offset[*at, 1, i, j], False)
            total = total + weight[o, c, k, m] * value * (mask[*at, i, j] if use_mask else 1)
        out.append(total)
    return torch.stack(out).reshape(n, len(weight), height, width)


@pytest.mark.parametrize("use_mask", [False, True])
@pytest.mark.parametrize("groups, shifts", [(1, 1), (2, 2), (1, 2)])
def test_deform_conv2d(groups, shifts, use_mask):
    rest = (2, 1, 1, 2, 1, 2, groups, shifts, use_mask)  # stride, padding, dilation
    out = (5 + 2 - 3) // 2 + 1, 4 + 4 - 3
    arrays = (normal(2, 4, 5, 4), normal(2, 4 // groups, 3, 2), 2 * normal(2, 12 * shifts, *out),
              normal(2, 6 * shifts, *out), normal(2))  # fmt: skip
    places = (0, 1, 2, 3, 4) if use_mask else (0, 1, 2, 4)
    assert_same(vision.deform_conv2d, deform_conv2d, arrays, *rest, places=places)


@pytest.mark.parametrize("targets", [[1], [1, 1, 2], [2, 1, 3, 3]], ids=str)
@pytest.mark.parametrize("frames", [5, 7])
def test_forced_align(targets, frames):
    """Against every path that there is."""
    scores = torch.log_softmax(torch.tensor(normal(1, frames, 4)), -1)
    told = torch.tensor([targets], dtype=torch.int32)
    spells = lambda path: [k for k, _ in itertools.groupby(path) if k] == targets
    paths = filter(spells, itertools.product(range(4), repeat=frames))
    best = max(paths, key=lambda path: float(sum(scores[0, t, k] for t, k in enumerate(path))))
    lengths = torch.tensor([frames]), torch.tensor([len(targets)])
    model = anyjax.from_torch(lambda x: audio.forced_align(x, told, *lengths, 0))
    got = jax.jit(lambda x: model.apply({}, x))(scores.numpy())
    assert_close(got, (np.array([best], np.int32), scores))
    with pytest.raises(Unsupported, match="forced_align of"):
        model.apply({}, scores.numpy()[:, : len(targets) - 1])
