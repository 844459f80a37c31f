"""``torch.where(mask)`` of a vector, and again of the rows that it chose, as detectors do."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=4)

BOXES = np.array([[0, 0, 5, 5], [1, 1, 6, 6], [2, 2, 2, 9], [0, 0, 1, 1]], np.float32)
SCORES = np.array([0.1, 0.9, 0.5, 0.7], np.float32)


def detected(boxes, scores):
    """The likely boxes, and of them the large ones."""
    keep = torch.where(scores > 0.3)[0]
    boxes, scores = boxes[keep], scores[keep]
    wide, high = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    keep = torch.where((wide >= 1) & (high >= 1))[0]
    return boxes[keep], scores[keep]


def total(boxes, scores):
    boxes, scores = detected(boxes, scores)
    return (boxes * 2).sum() + scores.mean(), boxes.sum(0)


def written(boxes, scores):
    """At places that count from behind."""
    out, likely = boxes * 1, scores > 0.3
    out[(torch.arange(4) - 4)[likely], 1] = scores[likely]
    return out.sum(1)


ONCE = {
    "where": lambda b, s: b[torch.where(s > 0.3)[0]].sum(0),
    "where, all of it": lambda b, s: s[torch.where(s > 0.3)].mean(),
    "masked rows": lambda b, s: (lambda m: m[torch.where(m[:, 2] > 3)[0]].sum(0))(b[s > 0.3]),
    "of three": lambda b, s: torch.where(s > 0.3, s, 0.0).sum(),
    "of three, masked rows": lambda b, s: (lambda m: torch.where(m > 3, m, 0.0).sum())(b[s > 0.3]),
    "detected": total,
    "written at integers": written,
    "at integers": lambda b, s: s[(torch.arange(4) - 4)[s > 0.3]].sum(),
}


@pytest.mark.parametrize("name", ONCE)
def test_places_of_rows(name):
    assert_same_values(ONCE[name], BOXES, SCORES, reduction=16)
    assert_same_gradients(ONCE[name], BOXES, SCORES, reduction=16)


def test_rows_of_an_unknown_number_are_a_result():
    """Outside of a program they are arrays; of one all that there can be, and their number."""
    model = anyjax.from_torch(detected)
    want = detected(torch.from_numpy(BOXES), torch.from_numpy(SCORES))
    got = model.apply({}, BOXES, SCORES)
    assert [x.shape for x in got] == [tuple(x.shape) for x in want]
    for (values, count), rows in zip(jax.jit(model.apply)({}, BOXES, SCORES), want):
        assert count == len(rows) and len(values) == len(BOXES)
        np.testing.assert_array_equal(values[:count], rows)
        assert not values[count:].any()


def test_places_of_a_matrix():
    """One vector for each of its dimensions, or as rows of one tensor."""
    model = anyjax.from_torch(lambda b: b[torch.where(b > 2)].sum())
    assert model.apply({}, BOXES) == BOXES[BOXES > 2].sum()
    np.testing.assert_allclose(jax.jit(model.apply)({}, BOXES), BOXES[BOXES > 2].sum(), rtol=1e-6)
    model = anyjax.from_torch(lambda b: (b > 2).nonzero().sum())
    assert jax.jit(model.apply)({}, BOXES) == int((torch.from_numpy(BOXES) > 2).nonzero().sum())


def test_rows_that_have_to_be_as_many_as_a_number():
    """torch raises for another number of them, a program gives no number."""
    model = anyjax.from_torch(lambda x: x[x[:, 0] > 0][:, 0] + torch.ones(2))
    rows = np.where(np.arange(4)[:, None] < 2, 1, -1) * np.ones((4, 6), np.float32)
    np.testing.assert_array_equal(jax.jit(model.apply)({}, rows), [2, 2])
    assert np.isnan(jax.jit(model.apply)({}, np.ones((4, 6), np.float32))).all()
