"""Programs run with loops give what they gave without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.transforms.rolling.loop import Row, Values, evaluate
from tests.transforms.rolling.programs import program

pytestmark = pytest.mark.sample(every=3)

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
DRAW = np.random.default_rng(0)
P = {f"{i}.w": DRAW.standard_normal((4, 4), np.float32) / 4 for i in range(4)}


def plain(p, x):
    for i in range(4):
        x = jnp.tanh(x @ p[f"{i}.w"]) + x
    return x


def kept(p, x):
    """All that is in between comes out, too."""
    out = []
    for i in range(4):
        x = jnp.tanh(x @ p[f"{i}.w"]) + i
        out.append(x)
    return out[1:]


def two(p, x):
    """Two values go from layer to layer, the second of them not into the result."""
    y = x * 2
    for i in range(4):
        x, y = jnp.tanh(x @ p[f"{i}.w"]) + y, y * 0.5 + x
    return x


def skips(p, x):
    """What two and three layers ago gave."""
    xs = [x, 2 * x, 3 * x]
    for i in range(6):
        xs.append(jnp.tanh(xs[-1] @ p[f"{i % 4}.w"] + xs[-2]) - xs[-3])
    return xs[-2]


def shared(p, x):
    """One weight in all layers."""
    for i in range(4):
        x = jnp.tanh(x @ p[f"{i}.w"]) @ p["0.w"]
    return x


ROUNDS = {two: 3, skips: 5}  # of the last layer not all is needed


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("function", [plain, kept, two, skips, shared])
def test_values_and_gradients(function, remat):
    """To the last bit or nearly, with one scan."""
    found = program(function, P, X)
    loops = found.loops
    assert [loop.rounds for loop in loops] == [ROUNDS.get(function, 4)]

    def rolled(p):
        given = dict(zip(found.jaxpr.invars, [*p.values(), X]))
        given |= dict(zip(found.jaxpr.constvars, found.consts))
        return evaluate(
            found.program.eqns, loops, found.program.last_use, found.outvars, given, remat
        )

    ours, theirs = rolled(P), jax.tree.leaves(function(P, X))
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))
    total = lambda f: lambda p: sum((x**2).sum() for x in jax.tree.leaves(f(p)))
    grads = jax.grad(total(rolled))(P)
    for name, grad in jax.grad(total(lambda p: function(p, X)))(P).items():
        assert np.allclose(grads[name], grad, rtol=1e-4, atol=1e-5), name
    assert str(jax.make_jaxpr(rolled)(P)).count("scan[") == len(loops)


def test_a_stack_is_taken_as_it_is():
    """No copies of rows that lie in order."""
    stack, other = jnp.arange(12.0).reshape(4, 3), jnp.ones(3)
    values = Values({i: Row(stack, i) for i in range(4)} | {"other": other})
    assert values.stacked(range(4)) is stack
    assert (values.stacked([1, 2]) == stack[1:3]).all()
    assert (values.stacked([2, 1]) == stack[2:0:-1]).all()
    assert (values.stacked([0, "other"]) == jnp.stack([stack[0], other])).all()
