"""torch's control flow and checkpointing as JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import anyjax
from anyjax.errors import Unsupported

pytestmark = pytest.mark.sample(every=4)


def assert_near(got, want, rtol=1e-5):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=1e-6)


def primitives(function, *args) -> str:
    return str(jax.make_jaxpr(function)(*args))


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_cond_takes_the_branch_of_the_value():
    layer = torch.nn.Linear(3, 3)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.layer(x).relu(), lambda x: x.sin(), (x,))

    model = anyjax.from_torch(Net())
    run = jax.jit(lambda p, x: model.apply(p, x))
    for x in (X + 1, X - 1):
        t = torch.tensor(x)
        want = layer(t).relu() if t.sum() > 0 else t.sin()
        assert_near(run(model.params, x), want.detach())
    assert "cond[" in primitives(lambda x: model.apply(model.params, x), X)
    grads = jax.jit(jax.grad(lambda p, x: (model.apply(p, x) ** 2).sum()))(model.params, X + 1)
    (layer(torch.tensor(X + 1)).relu() ** 2).sum().backward()
    assert_near(grads["layer.weight"], layer.weight.grad, 1e-4)
    both = jax.vmap(lambda x: model.apply(model.params, x))(jnp.stack([X + 1, X - 1]))
    assert_near(both[1], np.sin(X - 1))


def test_cond_with_a_known_predicate_traces_one_branch():
    def function(x):
        return torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x.nonsense(), (x,))

    assert_near(jax.jit(anyjax.from_torch(function).apply, static_argnums=())({}, X), X + 1)


def test_cond_returns_trees_and_closes_over_tensors():
    def function(x, scale):
        inner = x * scale
        out = torch.cond(
            x.mean() > 0,
            lambda a: {"a": a + inner, "n": (a > 0).sum()},
            lambda a: {"a": a - inner, "n": (a < 0).sum()},
            (x,),
        )
        return out["a"], out["n"]

    model = anyjax.from_torch(function)
    a, n = jax.jit(lambda x: model.apply({}, x, 2.0))(X - 1)
    assert_near(a, (X - 1) * -1)
    assert int(n) == ((X - 1) < 0).sum()


def test_while_loop():
    def function(x):
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (torch.tensor(0), x))

    model = anyjax.from_torch(function)
    steps, out = jax.jit(lambda x: model.apply({}, x))(X)
    want = X
    for i in range(5):
        want = want * 2 + i
    assert int(steps) == 5
    assert_near(out, want)
    assert "while[" in primitives(lambda x: model.apply({}, x), X)


def test_while_loop_has_derivatives():
    def function(x):
        grow = lambda y: (y * 1.5 + x.abs(),)
        return while_loop(lambda y: y.sum() < 50, grow, (x.abs(),))[0]

    def loop(x):
        y = x.abs()
        while y.sum() < 50:
            y = y * 1.5 + x.abs()
        return y

    x = np.linspace(-1, 2, 4, dtype=np.float32)
    given = torch.from_numpy(x).requires_grad_()
    (loop(given) ** 2).sum().backward()
    model = anyjax.from_torch(function)
    got = jax.jit(jax.grad(lambda x: (model.apply({}, x) ** 2).sum()))(x)
    assert_near(got, given.grad, 1e-4)
    ones = np.ones_like(x)
    pushed = torch.func.jvp(loop, (torch.from_numpy(x),), (torch.from_numpy(ones),))[1]
    assert_near(jax.jvp(lambda x: model.apply({}, x), (x,), (ones,))[1], pushed, 1e-4)


def test_while_loop_draws_anew_in_each_iteration():
    def draws(x):
        step = lambda i, rows: (i + 1, torch.cat([rows[1:], torch.rand(1, 3)]))
        return while_loop(lambda i, rows: i < 4, step, (torch.tensor(0), x))[1]

    rows = anyjax.from_torch(draws).apply({}, X, rng=jax.random.key(0))
    assert len(np.unique(np.asarray(rows))) == rows.size


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_one_scan_with_gradients(reverse):
    def function(w, xs):
        def step(carry, x):
            new = {"h": torch.tanh(carry["h"] @ w + x)}
            return new, (new["h"] * 2, new["h"].sum())

        return scan(step, {"h": torch.zeros(3)}, xs, reverse=reverse)

    def reference(w, xs):
        h, ys = torch.zeros(3), []
        for x in reversed(xs) if reverse else xs:
            h = torch.tanh(h @ w + x)
            ys.append(h * 2)
        return h, torch.stack(ys[::-1] if reverse else ys)

    w = np.eye(3, dtype=np.float32) * 0.5
    model = anyjax.from_torch(function)
    loss = lambda w: (model.apply({}, w, X)[1][0] ** 2).sum()
    carry, (ys, sums) = jax.jit(lambda w: model.apply({}, w, X))(w)
    tw = torch.tensor(w, requires_grad=True)
    h, want = reference(tw, torch.tensor(X))
    assert_near(carry["h"], h.detach())
    assert_near(ys, want.detach())
    assert_near(sums, want.detach().sum(1) / 2)
    (want**2).sum().backward()
    assert_near(jax.jit(jax.grad(loss))(w), tw.grad, 1e-4)
    assert primitives(loss, w).count("scan[") == 1


def test_dropout_in_a_scan_draws_anew_for_each_row():
    def function(xs):
        step = lambda carry, x: (carry + 0, torch.nn.functional.dropout(x, 0.5, True))
        return scan(step, torch.zeros(()), xs)[1]

    model = anyjax.from_torch(function)
    xs = np.ones((8, 64), np.float32)
    run = jax.jit(lambda key: model.apply({}, xs, rng=key))
    out = np.asarray(run(jax.random.key(0)))
    assert len(np.unique(out, axis=0)) == 8
    assert not np.array_equal(out, run(jax.random.key(1)))
    np.testing.assert_array_equal(out, run(jax.random.key(0)))


def test_map_and_associative_scan():
    model = anyjax.from_torch(lambda xs, y: torch_map(lambda x, y: (x * y).cumsum(0), xs, y))
    assert_near(jax.jit(model.apply)({}, X, X[0]), np.cumsum(X * X[0], 1))
    model = anyjax.from_torch(
        lambda xs: associative_scan(lambda a, b: a * b, xs, 0, combine_mode="generic")
    )
    assert_near(jax.jit(model.apply)({}, X), np.cumprod(X, 0))


def test_a_write_in_a_branch_is_refused():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            def yes(x):
                self.count.add_(1)
                return x + 0

            return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,))

    model = anyjax.from_torch(Net())
    with pytest.raises(Unsupported, match="writes to count"):
        jax.jit(model.apply)(model.params, X)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.drop(torch.tanh(self.layer(self.norm(x)))) * scale


class Checkpointed(torch.nn.Module):
    def __init__(self, block, reentrant):
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, x):
        x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        if self.reentrant:
            return checkpoint(self.block, x, 2.0, use_reentrant=True)
        return checkpoint(self.block, x, scale=2.0, use_reentrant=False)


class Plain(Checkpointed):
    def forward(self, x):
        return self.block(self.block(x), scale=2.0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_changes_memory_and_nothing_else(reentrant):
    block = Block()
    plain, saved = (anyjax.from_torch(c(block, reentrant).train()) for c in (Plain, Checkpointed))

    def run(model, key):
        def loss(params):
            out, state = model.apply(params, X, rng=key, mutable=True)
            return (out**2).sum(), (out, state)

        return jax.jit(jax.grad(loss, has_aux=True))(model.params)

    forward = lambda p: saved.apply(p, X, rng=jax.random.key(0), mutable=True)
    assert primitives(forward, saved.params).count("prevent_cse=True") == 2
    want, (out, state) = run(plain, jax.random.key(0))
    got, (again, written) = run(saved, jax.random.key(0))
    assert_near(again, out)
    for name in want:
        assert_near(got[name], want[name], 1e-4)
    for name in state:
        assert_near(written[name], state[name])
    assert int(written["block.norm.num_batches_tracked"]) == 2


def test_checkpoint_sequential():
    layers = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(4)])
    holder = torch.nn.Module()
    holder.layers = layers
    holder.forward = lambda x: checkpoint_sequential(layers, 2, x, use_reentrant=False)
    model = anyjax.from_torch(holder)
    assert_near(model(X), layers(torch.tensor(X)).detach())
