"""The loss of a linear head in blocks, beside the formula with all logits."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.numerics import head_loss
from anyjax.numerics.head_loss import block_of, linear_cross_entropy
from tests.tolerance import assert_close

CLASSES, WIDTH = 11, 6


def given(dtype=jnp.float32, batch=(2,), length=7):
    """Rows, a weight, a bias and labels, one of which does not count."""
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (*batch, length, WIDTH), (CLASSES, WIDTH), (CLASSES,)
    arrays = [jax.random.normal(k, s).astype(dtype) for k, s in zip(keys, shapes)]
    labels = jax.random.randint(keys[3], (*batch, length), 0, CLASSES)
    return (*arrays, labels.at[..., 2].set(-100))


def capped(logits):
    return 2 * jnp.tanh(logits / 2)


def plain(hidden, weight, bias, labels, pointwise=lambda logits: logits):
    """The same of all logits at once, in the numbers' own precision."""
    logits = pointwise(hidden @ weight.T + (0 if bias is None else bias))
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(labels, 0)[..., None], -1)
    return jnp.where(labels >= 0, -chosen[..., 0], 0).sum()


def of(labels, **options):
    return lambda hidden, weight, bias: linear_cross_entropy(
        hidden, weight, labels, bias, **options
    )


@pytest.mark.parametrize("rows", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("pointwise", [lambda logits: logits, capped])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_values_and_gradients(rows, pointwise, batch):
    *arrays, labels = given(batch=batch)
    run = of(labels, rows=rows, pointwise=pointwise)
    want = jax.value_and_grad(lambda *x: plain(*x, labels, pointwise), (0, 1, 2))(*arrays)
    assert_close(jax.value_and_grad(run, (0, 1, 2))(*arrays), want, reduction=64)
    assert_close(jax.jit(run)(*arrays), want[0], reduction=64)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_numbers(dtype):
    """The weight's gradient is summed over blocks in float32."""
    *arrays, labels = given(dtype)
    loss, found = jax.value_and_grad(of(labels, rows=2), (0, 1, 2))(*arrays)
    assert loss.dtype == jnp.float32
    assert [x.dtype for x in found] == [dtype] * 3
    exact = [x.astype(jnp.float32) for x in arrays]
    want = jax.value_and_grad(lambda *x: plain(*x, labels), (0, 1, 2))(*exact)
    assert_close((loss, tuple(x.astype(jnp.float32) for x in found)), want, rtol=0.03)


def test_derivatives_of_any_order():
    *arrays, labels = given()
    run, want = of(labels, rows=3), lambda *x: plain(*x, labels)
    along = lambda f: jax.jvp(f, arrays, [jnp.cos(x) for x in arrays])
    assert_close(along(run), along(want), reduction=64)
    for second in (
        lambda f: jax.hessian(f, (0, 1))(*arrays),
        lambda f: jax.jacrev(jax.jacrev(f, (1, 2)), 0)(*arrays),
    ):
        assert_close(second(run), second(want), reduction=64, rtol=1e-4)
    stacked = jnp.stack([arrays[0], -arrays[0]])
    mapped = lambda f: jax.vmap(jax.grad(f, 1), (0, None, None))(stacked, *arrays[1:])
    assert_close(mapped(run), mapped(want), reduction=64)
    assert_close(jax.grad(jax.checkpoint(run))(*arrays), jax.grad(want)(*arrays), reduction=64)


def test_rows_that_do_not_count_and_labels_that_are_no_class():
    *arrays, labels = given()
    loss, found = jax.value_and_grad(of(jnp.full_like(labels, -100), rows=2))(*arrays)
    assert loss == 0 and not found.any()
    assert linear_cross_entropy(*arrays[:2], jnp.zeros_like(labels), ignore_index=0) == 0
    assert jnp.isnan(of(labels.at[0, 0].set(CLASSES), rows=2)(*arrays))


def test_only_the_gradients_that_are_asked_for():
    *arrays, labels = given()
    products = lambda *by: str(jax.make_jaxpr(jax.grad(of(labels, rows=7), by))(*arrays)).count(
        "dot_general["
    )
    assert [products(0), products(1), products(2), products(0, 1)] == [2, 2, 1, 3]


def test_logits_are_there_in_blocks():
    shape = lambda *n: jax.ShapeDtypeStruct(n, jnp.bfloat16)
    labels = jnp.zeros((2, 64), int)
    run = jax.jit(jax.grad(of(labels, rows=8), (0, 1)))
    text = run.lower(shape(2, 64, 16), shape(512, 16), None).compile().as_text()
    sizes = {int(np.prod([*map(int, x.split(","))])) for x in re.findall(r"f32\[([\d,]+)\]", text)}
    assert max(sizes) == 2 * 8 * 512


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_the_batch_stays_on_its_devices(kind):
    mesh = jax.make_mesh((8,), ("data",), (getattr(jax.sharding.AxisType, kind),))
    hidden, weight, _, labels = given(batch=(8,), length=8)
    place = lambda x, *axes: jax.device_put(x, jax.NamedSharding(mesh, jax.P(*axes)))
    arrays = place(hidden, "data"), place(weight), place(labels, "data")
    run = lambda h, w, t: linear_cross_entropy(h, w, t, rows=2)
    run = jax.sharding.auto_axes(run, out_sharding=jax.P()) if kind == "Explicit" else run
    with jax.set_mesh(mesh):
        step = jax.jit(jax.value_and_grad(run, (0, 1)))
        assert "all-gather" not in step.lower(*arrays).compile().as_text()
        found = step(*arrays)
    want = jax.value_and_grad(lambda h, w: plain(h, w, None, labels), (0, 1))(hidden, weight)
    assert_close(found, want, reduction=64)


def test_sizes_of_blocks(monkeypatch):
    shape = lambda *n, mesh=None: jax.ShapeDtypeStruct(
        n, jnp.float32, sharding=mesh and jax.NamedSharding(mesh, jax.P())
    )
    assert block_of(shape(4, 2048, 8), shape(32000, 8)) == 512
    assert block_of(shape(8192, 8), shape(32000, 8)) == 2048
    assert block_of(shape(1, 2048, 8), shape(128000, 8)) is None
    assert block_of(shape(4, 2048, 8), shape(100, 8)) is None
    assert block_of(shape(4, 2047, 8), shape(50257, 8)) == 512
    assert block_of(shape(8), shape(32000, 8)) is None  # a vector
    assert block_of(shape(9000, 9000), shape(9000)) is None
    assert block_of(shape(5000, 16, 8), shape(32000, 8)) == 1
    (length,) = jax.export.symbolic_shape("length")
    assert block_of(shape(4, length, 8), shape(32000, 8)) is None
    mesh = jax.make_mesh((8,), ("data",), (jax.sharding.AxisType.Auto,))
    sizes = []
    monkeypatch.setattr(head_loss, "SMALLEST", 0)
    look = lambda hidden: sizes.append(block_of(hidden, shape(100, 8))) or hidden
    jax.eval_shape(look, shape(32, 2048, 8))
    jax.jit(look).lower(shape(32, 2048, 8, mesh=mesh))
    assert sizes == [64, 512]
