"""Which dimensions of a program's arrays are one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from anyjax.parallel.plans.same_dims import SameDims

pytestmark = pytest.mark.sample(every=2)


def roots(function, *shapes, parts=2):
    """Of the inputs, then of the outputs, the same small number for the same dimension."""
    arrays = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
    dims = SameDims(parts)
    jaxpr = jax.make_jaxpr(function)(*arrays)
    ins = [dims.new_dims(v.aval) for v in jaxpr.jaxpr.invars]
    outs = dims.walk(jaxpr, ins)
    known = {}
    number = lambda d: known.setdefault(dims.root(d), len(known))
    return [tuple(map(number, x)) for x in (*ins, *outs)], {
        number(d) for d, _ in dims.costs if dims.root(d) in known
    }


CASES = {
    "product": (lambda x, w: x @ w, [(2, 4), (4, 6)], [(0, 1), (1, 2), (0, 2)], {1}),
    "mlp": (
        lambda x, a, b: jax.nn.gelu(x @ a) @ b,
        [(2, 4), (4, 8), (8, 4)],
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        {1, 2},
    ),
    "residual": (lambda x, w: x + x @ w, [(2, 4), (4, 4)], [(0, 1), (1, 1), (0, 1)], {1}),
    "bias": (lambda x, b: x + b, [(2, 4), (4,)], [(0, 1), (1,), (0, 1)], set()),
    "sum": (lambda x: x.sum(0), [(2, 4)], [(0, 1), (1,)], {0}),
    "heads": (lambda x: x.reshape(3, 4, 5), [(3, 20)], [(0, 1), (0, 1, 2)], set()),
    "few heads": (lambda x: x.reshape(3, 5), [(15,)], [(0,), (1, 2)], {0, 1}),
    "part": (lambda x: x[:, :2], [(3, 4)], [(0, 1), (0, 2)], {1, 2}),
    "joined": (lambda x, y: jnp.concatenate([x, y]), [(3, 4), (5, 4)], [(0, 1), (2, 1), (3, 1)],
               {0, 2, 3}),
    "softmax": (lambda x: jax.nn.softmax(x), [(2, 4)], [(0, 1), (0, 1)], {1}),
    "running sum": (lambda x: jnp.cumsum(x, 1), [(2, 4)], [(0, 1), (0, 2)], {1, 2}),
    "rows": (lambda x: x[jnp.array([1, 0, 2])], [(4, 6)], [(0, 1), (2, 1)], {0}),
    "transposed": (lambda x: x.T, [(2, 4)], [(0, 1), (1, 0)], set()),
    "scan": (lambda x, w: lax.scan(lambda c, r: (c @ w, r), x, jnp.ones((3, 5)))[0],
             [(2, 4), (4, 4)], [(0, 1), (1, 1), (0, 1)], {1}),
    "while": (lambda x, w: lax.fori_loop(0, 3, lambda i, c: c @ w, x),
              [(2, 4), (4, 4)], [(0, 1), (1, 1), (0, 1)], {1}),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda x: x, lambda x: -x, x), [(2, 4)],
             [(0, 1), (0, 1)], {0, 1}),
    "checkpoint": (jax.checkpoint(lambda x, w: jnp.sin(x @ w)), [(2, 4), (4, 6)],
                   [(0, 1), (1, 2), (0, 2)], {1}),
    "convolution": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), [(2, 4, 8, 8), (6, 4, 3, 3)],
                    [(0, 1, 2, 3), (4, 1, 5, 6), (0, 4, 7, 8)], {1}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rules(name):
    function, shapes, want, costs = CASES[name]
    assert roots(function, *shapes) == (want, costs)


def test_attention():
    """Queries, keys, values and output share their heads; the features stay apart."""

    def attention(x, q, k, v, o):
        heads = lambda w: (x @ w).reshape(2, 16, 4, 8)
        out = jax.nn.dot_product_attention(heads(q), heads(k), heads(v))
        return x + out.reshape(2, 16, 32) @ o

    (_, q, k, v, o, _), _ = roots(attention, (2, 16, 32), *[(32, 32)] * 4, parts=4)
    assert q == k == v == o[::-1]
    assert q[0] != q[1]


def test_what_is_needed_whole():
    """Windows of convolutions, and tables that are read from end to end."""
    dims = SameDims(2)
    read = lambda x, kernel, table, rows: (lax.conv(x, kernel, (1, 1), "SAME"), table[rows])
    shapes = [((2, 4, 8, 8), "f4"), ((6, 4, 2, 2), "f4"), ((8, 3), "f4"), ((8,), "i4")]
    given = [jax.ShapeDtypeStruct(*x) for x in shapes]
    (_, kernel, table, _), _ = dims.read_program(jax.make_jaxpr(read)(*given))
    assert {dims.root(d) for d in dims.gathered} == {dims.root(d) for d in (*kernel[2:], table[0])}


def test_a_table_of_tokens_is_not_needed_whole():
    """However many tokens there are: another call has others."""
    dims = SameDims(2)
    read = jax.jit(lambda table, rows: table[jnp.abs(rows) + 1])
    shapes = [jax.ShapeDtypeStruct((8, 3), "f4"), jax.ShapeDtypeStruct((4, 8), "i4")]
    dims.read_program(jax.make_jaxpr(read)(*shapes), 1)
    assert not dims.gathered


def test_groups_of_products():
    """What stacks the matrices of experts, in the gradient, too."""
    product = lambda x, w, sizes: (lax.ragged_dot(x, w, sizes) ** 2).sum()
    shapes = [((6, 4), "f4"), ((2, 4, 8), "f4"), ((2,), "i4")]
    given = [jax.ShapeDtypeStruct(*x) for x in shapes]
    for run in (product, jax.grad(product, 1)):
        dims = SameDims(2)
        (x, w, _), (out,) = dims.read_program(jax.make_jaxpr(run)(*given))
        assert {dims.root(w[0])} <= {dims.root(d) for d in dims.groups}
        assert dims.root(x[1]) == dims.root(w[1]) != dims.root(w[2])
        assert not out or [dims.root(d) for d in out] == [dims.root(d) for d in w]
