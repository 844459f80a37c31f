"""Branches on traced values: both ways are compiled, with torch's values and gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent, StateDropped
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.array([0.5, 1.5, 2.5], np.float32)


def one(x):
    if x.sum() > 0:
        x = x.sqrt() + 1
    return x * 2


def chain(x):
    if x.sum() > 5:
        return x**2
    elif x.max() > 1 and x.min() > 0:
        return x.exp()
    return x - 1


def in_turn(x):
    for limit in (0.0, 2.0, 4.0):
        if (x > limit).all():
            x = x * 3
        else:
            x = x + limit
    return x


def by_item(x):
    return x * 2 if (x > 1).any().item() and not torch.isnan(x).any().item() else x.cos()


def in_place(x):
    y = x.clone()
    if y[0] > 0:
        y[1:] = 7.0
        y[0].mul_(x[2])
    return y, {"sum": y.sum()}


def handled(x):
    try:
        if x.sum() > 0:
            raise LookupError
        return x * 5
    except LookupError:
        return x * 4


def swallowed(x):
    try:
        y = x * 2 if x.sum() > 0 else x[7]
    except:  # noqa: E722 (whatever it is)
        y = x * 3
    return y


def numbers(x):
    scale = 2.0 if x.sum() > 0 else 0.5
    return x * scale


def greatest(x):
    return max(x[0], x[1], x[2]) * x


SERVED = [one, chain, in_turn, by_item, in_place, handled, swallowed, numbers, greatest]


@pytest.mark.parametrize("function", SERVED, ids=lambda f: f.__name__)
def test_values_and_gradients(function):
    model = anyjax.from_torch(function)
    total = lambda tree: sum(x.sum() for x in jax.tree.leaves(tree))
    value_and_grad = jax.jit(jax.value_and_grad(lambda x: total(model.apply({}, x))))
    for x in (X, -X, X + 3, X - 1, X / 10):
        tensor = torch.tensor(x, requires_grad=True)
        want = function(tensor)
        assert_close(model(x), want)
        assert_close(value_and_grad(x), (total(want), *torch.autograd.grad(total(want), tensor)))


def test_vmap_and_forward_mode():
    model = anyjax.from_torch(chain)
    rows = np.stack([X, -X, X + 3])
    want = torch.stack([chain(torch.tensor(x)) for x in rows])
    assert_close(jax.vmap(lambda x: model.apply({}, x))(rows), want)
    _, tangent = jax.jit(lambda x: jax.jvp(lambda x: model.apply({}, x), (x,), (x,)))(X + 3)
    assert_close(tangent, 2 * (X + 3) ** 2)


def test_the_other_way_is_not_run():
    """Its gradient is infinite at 0, and infinity times 0 would be NaN."""
    model = anyjax.from_torch(lambda x: x.sqrt() if x.sum() > 0 else x * 3)
    assert jax.jit(jax.grad(lambda x: model.apply({}, x).sum()))(X * 0).tolist() == [3, 3, 3]


class Counted(torch.nn.Module):
    """Writes to its state, and to attributes, on one way alone."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("positive", torch.zeros(()))
        self.register_buffer("largest", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if x.sum() > 0:
            self.positive += 1
            if x.max() > 1:
                self.largest.copy_(x.max())
            return self.layer(x)
        return torch.nn.functional.dropout(x, 0.5, training=self.training)


def test_state_that_some_ways_write():
    torch.manual_seed(0)
    module = Counted().train()
    model = anyjax.from_torch(module)
    call = jax.jit(lambda p, s, x: model.apply(p, x, state=s, mutable=True, rng=jax.random.key(0)))
    state = model.state
    for x in (X, X / 10, -X):
        out, state = call(model.params, state, x)
        want = module(torch.tensor(x))
        if x.sum() > 0:
            assert_close(out, want)
        else:
            assert set((out / x).tolist()) <= {0.0, 2.0}
        assert float(state["positive"]) == float(module.positive)
        assert float(state["largest"]) == float(module.largest)
    fresh = anyjax.from_torch(Counted().eval())
    assert fresh.source.module.calls == 0
    with pytest.warns(StateDropped, match="largest, positive"):
        fresh(X)
    assert fresh.source.module.calls == 0


class Noted(torch.nn.Module):
    """Keeps a tensor as an attribute, on all ways or on one."""

    def __init__(self, always):
        super().__init__()
        self.always = always

    def forward(self, x):
        if x.sum() > 0:
            self.seen = x * 2
            return x
        if self.always:
            self.seen = x * 3
        return -x


def test_attributes_that_all_ways_write():
    model = anyjax.from_torch(Noted(True))
    assert_close(jax.jit(lambda x: model.apply({}, x, mutable=True))(-X), (X, {"seen": -X * 3}))
    model = anyjax.from_torch(Noted(False))
    with pytest.raises(DataDependent, match="only some of its ways write to seen"):
        jax.jit(lambda x: model.apply({}, x, mutable=True))(X)


def many(x):
    for i in range(7):
        x = x + 1 if x[0] > i else x * 2
    return x


def shapes(x):
    return x if x.sum() > 0 else x[:2]


def dtypes(x):
    return x if x.sum() > 0 else x.int()


def kinds(x):
    return x if x.sum() > 0 else (x,)


def number(x):
    return x, 1 if x.sum() > 0 else 2


def fails(x):
    return x if x.sum() > 0 else x.view(5)


def raises(x):
    return x if x.sum() > 0 else {"a": x}["b"]


CALLS = itertools.count(1)


class Slotted:
    __slots__ = ("last",)


SLOTTED = Slotted()
SLOTTED.last = torch.ones(3)


def counts(x):
    calls = next(CALLS)
    return x * calls if x.sum() > 0 else x


def keeps(x):
    last, SLOTTED.last = SLOTTED.last, x * 2
    return x if x.sum() > 0 else last


REFUSED = {
    many: "more than 64 ways through the code",
    shapes: r"one of its ways gives float32\[3\], another float32\[2\]",
    dtypes: r"one of its ways gives float32\[3\], another int32\[3\]",
    kinds: "values of different kinds",
    number: "values of different kinds",
    fails: "one of its two ways raises ForwardFailed: aten.view.default cannot be computed",
    raises: "one of its two ways raises KeyError: 'b'",
    counts: "changes something outside of itself",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_refused(function):
    model = anyjax.from_torch(function)
    with pytest.raises(DataDependent, match=REFUSED[function]) as caught:
        jax.jit(lambda x: model.apply({}, x))(X)
    lines = str(caught.value).splitlines()
    assert len(lines) == 5 and "test_branches.py:" in lines[1]
    assert caught.value.arguments == ("x",)
    model.apply({}, jnp.asarray(X))  # outside of jit all is known


def test_what_an_object_keeps_is_state_of_all_ways():
    model = anyjax.from_torch(keeps)
    for x, want in ((X, X), (-X - 1, np.ones(3))):
        out, state = jax.jit(lambda x: model.apply({}, x, mutable=True))(x)
        np.testing.assert_array_equal(out, want)
        np.testing.assert_array_equal(state["SLOTTED.last"], 2 * x)


def test_inside_a_region_of_its_own():
    """JAX traces a branch by itself, and a condition in it."""
    branch = lambda x: x * 3 if x[0] > 1 else -x
    function = lambda x: torch.cond(x.sum() > 0, branch, lambda x: x.clone(), (x,))
    run = jax.jit(lambda x: anyjax.from_torch(function).apply({}, x))
    for x in (X, X + 2, -X - 1):
        np.testing.assert_array_equal(run(x), branch(x) if x.sum() > 0 else x)


def test_known_conditions_choose_now():
    """Outside of jit, also while it is differentiated, only the way that is taken runs."""
    model = anyjax.from_torch(lambda x: shapes(x).sqrt())
    assert model.apply({}, jnp.asarray(X - 5)).shape == (2,)
    grads = jax.grad(lambda x: model.apply({}, x).sum())(jnp.asarray(X))
    assert_close(grads, 0.5 / np.sqrt(X))


def test_what_is_the_same_on_all_ways():
    model = anyjax.from_torch(lambda x: {"out": one(x), "name": "one", "size": len(x)})
    assert model(X)["name"] == "one" and model(-X)["size"] == 3


def test_what_comes_before_is_computed_once():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)

    def function(x):
        x = layer(x).exp()
        if x.sum() > 3:
            return x.sin()
        return layer(x) if x.max() > 0.5 else x.cos()

    model = anyjax.from_torch(function)
    text = str(jax.make_jaxpr(lambda p, x: model.apply(p, x))(model.params, X))
    counts = [text.count(f"= {op}") for op in ("exp", "sin", "cos", "dot_general", "cond")]
    assert counts == [2, 1, 1, 3, 2]  # exp and the first product: also in the run that stopped
    call = jax.jit(lambda p, x: model.apply(p, x))
    for x in (X, -X, X * 0):
        assert_close(call(model.params, x), function(torch.tensor(x)))


def test_an_operator_that_fails_fails_again():
    """As ``torch._check_tensor_all`` reads its condition first, and is served where it cannot."""

    def function(x):
        try:
            scale = x.sum().tolist()
        except DataDependent:
            scale = x.sum()
        torch._check_tensor_all(x < 100)
        for i in range(3):
            if (x > i).any():
                x = x * scale
        return x

    model = anyjax.from_torch(function)
    for x in (X, -X):
        got = jax.jit(model.apply)({}, x)
        assert_close(got, function(torch.tensor(x)).numpy(), reduction=32)


def test_masks_from_before_are_the_same():
    def function(x, keep):
        chosen = x[keep > 0]
        if x.sum() > 0:
            return (chosen * x[keep > 0]).sum()
        return chosen.mean()

    model = anyjax.from_torch(function)
    for x in (X, -X):
        given = x, np.array([1, 0, 1])
        want = function(*map(torch.tensor, given))
        assert_close(jax.jit(lambda x, k: model.apply({}, x, k))(*given), want)


def test_saved(tmp_path):
    model = anyjax.from_torch(one)
    model.save(tmp_path / "one", X)
    loaded = anyjax.load(tmp_path / "one")
    for x in (X, -X):
        assert_close(loaded(x), one(torch.tensor(x)))


def retried(x):
    """As a Cholesky factor is tried with more and more jitter."""
    for jitter in (0.0, 1.0, 10.0):
        factor, info = torch.linalg.cholesky_ex(x + jitter * torch.eye(2))
        if not torch.any(info):
            return factor
    raise ValueError("not positive definite")


@pytest.mark.parametrize("shift", [0.0, -1.5, -6.0, -50.0])
def test_a_way_that_ends_in_raise_gives_no_number(shift):
    x = np.eye(2, dtype=np.float32) * (1 + shift)
    got = jax.jit(anyjax.from_torch(retried).apply)({}, x)
    if shift == -50:
        assert np.isnan(got).all()
    else:
        np.testing.assert_allclose(got, retried(torch.from_numpy(x)), rtol=1e-5)


def test_ways_that_all_raise_are_refused():
    def checked(x):
        if x.sum() > 0:
            x = x * 2
        if x.prod() > 1:
            x = x + 1
        elif x.prod() < 1:
            x = x - 1
        raise ValueError("never")

    with pytest.raises(ValueError, match="never"):
        jax.jit(anyjax.from_torch(checked).apply)({}, np.ones(2, np.float32))


def test_a_way_may_give_nan():
    def score(x):
        for row in x:
            if row.sum() > 0:
                return row.sum()
        return torch.tensor(float("nan"))

    call, rows = jax.jit(anyjax.from_torch(score).apply), np.float32([[-1, 2], [0, -1]])
    assert call({}, rows) == 1
    assert np.isnan(call({}, -np.abs(rows)))


def test_a_list_that_grows_beside_a_condition():
    class Metric(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = []

        def forward(self, x):
            score = x.sum() if x.sum() > 0 else torch.tensor(float("nan"))
            self.scores.append(score)
            return score

    model = anyjax.from_torch(Metric())
    with pytest.warns(anyjax.errors.StateDropped, match="scores"):
        assert jax.jit(lambda x: model.apply({}, x))(np.float32([1, 2])) == 3
