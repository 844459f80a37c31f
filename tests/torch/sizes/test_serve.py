"""``x[mask]`` under jit: values and gradients are torch's; what shows how many rows is refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

torch.manual_seed(0)
X, Y, W = torch.randn(4, 6), torch.randn(4, 6), torch.randn(6, 3)
S, V = torch.tensor(2.0), torch.rand(6) + 0.5
LABELS, CHOSEN = torch.tensor([2, 1, 0, 1]), torch.tensor([True, False, True, True])


def halved(x):
    y = x * 1
    y[y > 0] *= 0.5
    return y


def both_sides(x, y):
    y, mask = y * 1, x[:, 0] > 0
    y[mask] = x[mask] * 2 + y[mask, :]
    y[~mask] = x[~mask].exp()
    return y


def logarithms(x, y):
    out = torch.zeros_like(x)
    out[x > 0] = torch.log(x[x > 0]) * y[x > 0]
    return out


def layers(x, w):
    mask, out = x[:, 0] > 0, x.new_zeros(4, 3)
    out[mask] = F.relu(F.linear(x[mask], w.T))
    return out


def head(x, w, labels):
    return F.cross_entropy(x[labels != 1] @ w, labels[labels != 1])


def smoothed(x, w, labels):
    weight, mask = torch.tensor([1.0, 2.0, 3.0]), labels != 1
    options = {"weight": weight, "label_smoothing": 0.1}
    every = F.cross_entropy((x @ w)[mask], labels[mask], reduction="none", **options)
    return every.sum() + F.cross_entropy((x @ w)[mask], labels[mask], **options)


def weighted(x, y):
    mask, weights = x[:, 0] > 0, torch.arange(6.0) + 1
    return F.binary_cross_entropy_with_logits(x[mask], y[mask].sigmoid(), pos_weight=weights)


def in_place(x):
    rows = x[x > 0]
    same = rows
    same += 1
    rows.mul_(2)
    return rows.sum()


def unseen_writes(x):
    y = x * 1
    mask = y > 0
    rows = y[mask]
    y.zero_()
    return (rows + 1).sum() + y.sum()


def without_gradient(x):
    y = x * 1
    with torch.no_grad():
        y[y > 0] = y[y > 0] * 0 + 3
    return y * 2


def branches(x):
    inside = torch.cond(x.sum() > 0, lambda x: x[x > 0].sum(), lambda x: (2 * x[x < 0]).sum(), (x,))
    return inside + x[x > 0].sum()


def parts(x):
    """A part that is computed again, and branches, compare what is compared around them."""
    again = lambda y: torch.where(x[:, 0] > 0, y[:, 1], y[:, 2])
    inside = torch.utils.checkpoint.checkpoint(again, x, use_reentrant=False).sum()
    shown = lambda y: (y * (x[:, 0:1] > 0)).sum()
    with warnings.catch_warnings(action="ignore"):  # Dynamo's own, in torch
        chosen = torch.cond(inside > 0, shown, lambda y: 2 * shown(y), (x * 1,)) + shown(x)
    return inside + chosen + rows_of(x).sum() + again(x).sum()


def numbers_in_parts(x):
    rows = x[x > 0]
    count = lambda x: rows.numel() * x.sum()
    return torch.utils.checkpoint.checkpoint(count, x, use_reentrant=False) / rows.numel()


def rows_of(x):
    return x[x[:, 0] > 0]


def of_labelled(x, w, labels):
    """As DeBERTa's classifiers have it."""
    index, logits = (labels >= 0).nonzero(), x @ w
    if index.size(0) > 0:
        chosen = torch.gather(logits, 0, index.expand(index.size(0), logits.size(1)))
        labels = torch.gather(labels, 0, index.view(-1))
        return F.cross_entropy(chosen.view(-1, 3).float(), labels.view(-1))
    return torch.tensor(0).to(logits)


def at_places(x):
    mask = x[:, 0] > 0
    places = mask.nonzero().squeeze(-1)
    tuples = x[mask.nonzero(as_tuple=True)].sum(0) + x[torch.where(mask)[0]].exp().sum(0)
    return x.index_select(0, places).sum(0) * places.sum() + tuples + (places * 2).float().mean()


def by_number(x):
    rows = rows_of(x)
    if rows.shape[0] == 0:
        return x.sum() * 0
    n, width = rows.shape
    return rows.sum() / (n * width) + rows.square().sum() / max(rows.numel(), 1) + rows.size(0)


PROGRAMS = {
    "halved": (halved, X),
    "both sides": (both_sides, X, Y),
    "logarithms": (logarithms, X, Y),
    "layers": (layers, X, W),
    "mean": (lambda x: x[x > 0].mean(), X),
    "square roots": (lambda x: x[x > 0].sqrt().mean(), X),
    "a scale": (lambda x, s: (s * x[x > 0].log()).sum(), X, S),
    "division": (lambda x, s: (s / x[x > 0]).sum(), X.relu(), S),
    "each column": (lambda x, v: (rows_of(x) / v).sum(0), X, V),
    "means of columns": (lambda x: rows_of(x).mean(0, keepdim=True), X),
    "a mask that is given": (lambda x, mask: x[mask].mean(0), X, CHOSEN),
    "losses": (head, X, W, LABELS),
    "smoothed": (smoothed, X, W, LABELS),
    "squares": (lambda x, y: F.mse_loss(x[x > 0], y[x > 0]), X, Y),
    "weights": (weighted, X, Y),
    "softmax": (lambda x: rows_of(x).softmax(-1)[:, 0].sum(), X),
    "norm": (lambda x: F.layer_norm(rows_of(x), (6,)).square().sum(0), X),
    "view": (lambda x, w: (rows_of(x) @ w).view(-1, 3).unsqueeze(1).sum((0, 1)), X, W),
    "table": (lambda w, labels: F.embedding(labels[labels != 1], w).sum(0), W, LABELS),
    "joined": (lambda x: torch.cat([rows_of(x), rows_of(x)], -1).sum(0), X),
    "in place": (in_place, X),
    "none": (lambda x: x[x > 100].sum() + torch.nan_to_num(x[x > 100].mean()), X),
    "selected": (lambda x: x.masked_select(x > 0).mean(), X),
    "writes elsewhere": (unseen_writes, X),
    "no_grad": (without_gradient, X),
    "labelled": (of_labelled, X, W, torch.tensor([2, -1, 0, 1])),
    "places": (at_places, X),
    "where by name": (lambda x: torch.where(x[:, 0] > 0, input=x.sum(1), other=x[:, 1]), X),
    "number": (by_number, X),
    "numbers in parts": (numbers_in_parts, X),
    "none of a number": (by_number, X - 100),
    "branches": (branches, X),
    "parts": (parts, X),
    "a module": (lambda x: torch.nn.GELU()(rows_of(x)).sum(), X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name):
    function, *given = PROGRAMS[name]
    floats = [i for i, x in enumerate(given) if x.is_floating_point()]
    tensors = [x.clone().requires_grad_() if i in floats else x for i, x in enumerate(given)]
    want = function(*tensors)
    grads = torch.autograd.grad(want.sum(), [tensors[i] for i in floats])
    arrays = [jnp.asarray(x.numpy()) for x in given]
    model = anyjax.from_torch(function)
    assert_close(jax.jit(lambda *xs: model.apply({}, *xs))(*arrays), want, reduction=64)
    loss = lambda *xs: model.apply({}, *xs).sum()
    got = jax.jit(jax.grad(loss, argnums=tuple(floats)))(*arrays)
    assert_close(list(got), list(grads), reduction=256, scale=1.0)


def test_integers_and_bools():
    def accuracy(x, labels):
        mask = labels != 1
        right = x[mask].argmax(-1) == labels[mask]
        return right.float().mean(), right.sum(), right.all(), right.any(), (x > 0)[x > 0].all()

    model = anyjax.from_torch(accuracy)
    got = jax.jit(lambda *xs: model.apply({}, *xs))(X.numpy(), LABELS.numpy())
    assert_close(list(got), list(accuracy(X, LABELS)))


def test_a_mask_that_changes_later():
    def later(x):
        mask = x > 0
        rows = x[mask]
        mask.logical_not_()
        return (rows + 1).sum() - x[mask].sum()

    model = anyjax.from_torch(later)
    assert_close(jax.jit(lambda x: model.apply({}, x))(X.numpy()), later(X), reduction=24)


def test_batches():
    model = anyjax.from_torch(lambda x: x[x > 0].mean())
    xs = np.stack([X.numpy(), -X.numpy()])
    got = jax.vmap(lambda x: model.apply({}, x))(xs)
    assert_close(got, torch.stack([X[X > 0].mean(), -X[X < 0].mean()]), reduction=24)


SPOKEN = torch.tensor([[3, 1, -100, -100], [2, 2, 4, -100], [1, -100, 3, 3]])


def of_speech(x, texts, extra=0, **options):
    """CTC as transformers' models compute it."""
    said = texts >= 0
    each = torch.full((len(x),), x.shape[1])
    logits = x.log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(logits, texts.masked_select(said), each, said.sum(-1) + extra, **options)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_texts_one_behind_the_other(reduction):
    x, cotangent = torch.randn(3, 9, 5, requires_grad=True), torch.tensor([1.0, 2.0, -1.0])
    want = of_speech(x, SPOKEN, reduction=reduction)
    (want * cotangent).sum().backward()
    loss = lambda x, texts, **other: anyjax.from_torch(of_speech).apply({}, x, texts, **other)
    scaled = lambda *xs: (loss(*xs, reduction=reduction) * cotangent.numpy()).sum()
    got = jax.jit(lambda *xs: loss(*xs, reduction=reduction))(x.detach().numpy(), SPOKEN.numpy())
    assert_close(got, want.detach(), reduction=64)
    grad = jax.jit(jax.grad(scaled))(x.detach().numpy(), SPOKEN.numpy())
    assert_close(grad, x.grad, reduction=64, scale=1.0)
    wrong = jax.jit(lambda *xs: loss(*xs, extra=1))(x.detach().numpy(), SPOKEN.numpy())
    assert np.isnan(wrong)


ENDS = torch.tensor([[1, 0, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=torch.bool)
TEXTS = torch.randn(3, 5, 4)


def of_each_text(place):
    """The row at a place among those that are chosen of each text."""
    return lambda x, ends: torch.tanh(x[ends, :]).view(len(x), -1, x.size(-1))[:, place, :]


@pytest.mark.parametrize("place", [0, 1, -1, -2])
def test_rows_of_each_element(place):
    function, cotangent = of_each_text(place), torch.rand(3, 4, generator=torch.Generator())
    x = TEXTS.clone().requires_grad_()
    want = function(x, ENDS)
    want.backward(cotangent)
    model = anyjax.from_torch(function)
    got, back = jax.vjp(jax.jit(lambda x: model.apply({}, x, ENDS.numpy())), TEXTS.numpy())
    assert_close(got, want.detach())
    assert_close(back(cotangent.numpy())[0], x.grad, reduction=2)  # tanh, and its square
    traced = jax.jit(lambda x, ends: model.apply({}, x, ends))
    assert_close(traced(TEXTS.numpy(), ENDS.numpy()), want.detach())


@pytest.mark.parametrize("chosen", [ENDS[:, :4], ENDS.new_zeros(3, 5)], ids=["unlike", "none"])
def test_rows_of_each_element_that_differ_are_no_numbers(chosen):
    texts = TEXTS[:, : chosen.shape[1]].numpy()
    traced = jax.jit(lambda x, ends: anyjax.from_torch(of_each_text(-1)).apply({}, x, ends))
    assert np.isnan(traced(texts, chosen.numpy())).all()


OF_EACH = {
    "sum": lambda x: x.sum(1),
    "the first two": lambda x: x[:, :2].sum(1),
    "a column": lambda x: x[:, -1, 0],
    "relu": lambda x: F.relu(x + 1).sum(1),
    "their number": lambda x: x.sum(1) * x.shape[1] + torch.ones(x.shape).sum(),
    "softmax": lambda x: x.softmax(1).square().sum(1),
}


@pytest.mark.parametrize("name", OF_EACH)
def test_rows_that_each_element_has_as_many_of(name):
    function = lambda x, ends: OF_EACH[name](x[ends].view(3, -1, 4))
    model = anyjax.from_torch(function)
    got = jax.jit(lambda x, ends: model.apply({}, x, ends))(TEXTS.numpy(), ENDS.numpy())
    assert_close(got, function(TEXTS, ENDS), reduction=16)


def other_mask_after_a_write(x):
    mask = x > 0
    rows = x[mask]
    mask.logical_not_()
    return (rows * x[mask]).sum()


def view_written(x):
    rows = rows_of(x)
    rows[:, 0].add_(1)
    return rows.sum()


def alias_written(x):
    rows = x[x > 0]
    same = rows.float()
    same += 1
    return rows.sum()


OF_THEIR_NUMBER = {
    "a result": lambda x: x[x > 0],
    "a size": lambda x: x.sum() + torch.ones(x[x > 0].numel()).sum(),
    "to places": lambda x: x.index_fill(0, (x[:, 0] > 0).nonzero().view(-1), 3),
    "extremes": lambda x: x[x > 0].max(),
    "along the rows": lambda x: x[x > 0].cumsum(0).sum(),
    "softmax of rows": lambda x: x[x > 0].softmax(0).sum(),
    "another axis": lambda x: rows_of(x).sum(axis=1).sum(),
    "flat": lambda x: rows_of(x).view(-1).sum(),
    "joined below": lambda x: torch.cat([x[x > 0], x[x > 0]]).sum(),
    "the first": lambda x: x[x > 0][0],
    "relu in place": lambda x: F.relu(x[x > 0], inplace=True).sum(),
    "view written": view_written,
    "alias written": alias_written,
    "columns": lambda x: x[:, :4].masked_select(x[:, 0] > 0).sum(),
}
REFUSED = {
    "values": lambda x: x * x[x > 0].tolist()[0],
    "memory": lambda x: x * torch.from_numpy(x[x > 0].numpy()).sum(),
    "len": lambda x: x * len(x[x > 0]),
    "each place": lambda x: sum(x[i] for i in (x[:, 0] > 0).nonzero()).sum(),
    "places": lambda x: (x[:, 0] > 0).nonzero().expand(3, 2).sum(),
    "iteration": lambda x: sum(iter(x[x > 0])),
    "other rows": lambda x: (x[x > 0] * x[x < 0]).sum(),
    "another mask": other_mask_after_a_write,
    "into a slice": lambda x: (x * 1).__setitem__(slice(2), rows_of(x)),
    "at numbers that are floats": lambda x: x[x[x > 0]].sum(),
}


def test_no_label_at_all():
    """torch gives a constant then, which has no gradient."""
    model = anyjax.from_torch(of_labelled)
    loss = jax.jit(jax.value_and_grad(lambda x, w, labels: model.apply({}, x, w, labels)))
    value, grad = loss(X.numpy(), W.numpy(), np.full(4, -1))
    assert value == 0 and not grad.any()


@pytest.mark.parametrize("name", REFUSED)
def test_what_shows_the_number_of_rows(name):
    model = anyjax.from_torch(REFUSED[name])
    with pytest.raises(DataDependent, match=r"(?s)depends on .*\n  where: .*sizes/test_serve.py"):
        jax.jit(lambda x: model.apply({}, x))(X.numpy())


@pytest.mark.parametrize("name", OF_THEIR_NUMBER)
def test_what_torch_makes_of_their_number(name):
    function = OF_THEIR_NUMBER[name]
    model, x = anyjax.from_torch(function), X.clone().requires_grad_()
    want = function(x * 1)
    got = jax.jit(model.apply)({}, X.numpy())
    if isinstance(got, anyjax.CountedArray):
        got = got.values[: int(got.length)]
    assert_close(got, want.detach(), reduction=24)
    grad = jax.jit(jax.grad(lambda x: values_of(model.apply({}, x)).sum()))(X.numpy())
    assert_close(grad, torch.autograd.grad(want.sum(), x)[0], reduction=24, scale=1.0)


def values_of(out):
    return out.values if isinstance(out, anyjax.CountedArray) else out


@pytest.mark.parametrize("name", ["len", "a result", "columns"])
def test_outside_of_jit_all_is_known(name):
    function = (REFUSED | OF_THEIR_NUMBER)[name]
    model = anyjax.from_torch(function)
    assert_close(model.apply({}, X.numpy()), function(X), reduction=24)


def test_rows_of_an_unknown_number_are_tensors_to_other_code():
    def forward(x):
        rows, places = x[x > 1], x.nonzero(as_tuple=True)[0]
        kinds = (rows, places, (x > 1).nonzero(), x[places], 2 * rows.exp())
        assert all(isinstance(one, torch.Tensor) and torch.is_tensor(one) for one in kinds)
        assert not any(isinstance(one, (nn.Parameter, int, list)) for one in kinds)
        return rows.sum() + 0 * x

    np.testing.assert_array_equal(anyjax.from_torch(forward)(np.arange(4.0)), np.full(4, 5.0))
