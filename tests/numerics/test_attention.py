"""Attention: each way to compute it beside the formula in float64, and what JAX does with it."""

import functools
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anyjax.numerics import attention
from anyjax.numerics.attention import blocks, cuda, divided, plain, primitive, tpu
from anyjax.numerics.attention.form import Form
from tests.tolerance import assert_close, tolerance


def wanted(form, query, key, value, *masks):
    """Weights and result in float64, each head with keys of its own."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], 1) for x in (key, value))
    inner = np.einsum("bnld,bnsd->bnls", query, key) * form.scale
    scores = inner if form.cap is None else form.cap * np.tanh(inner / form.cap)
    own, column = np.arange(query.shape[2])[:, None] + form.shift, np.arange(key.shape[2])
    seen = np.ones((query.shape[2], key.shape[2]), bool)
    if form.causal:
        seen = (own >= column) & (column > own - (form.window or len(column) + own.max()))
    scores = np.where(seen, scores, -np.inf)
    for mask in masks:
        scores = scores + (np.where(mask, 0, -np.inf) if mask.dtype == bool else mask)
    high = np.maximum(scores.max(-1, keepdims=True), -1e300)
    exp = np.exp(scores - high)
    weights = exp / np.maximum(exp.sum(-1, keepdims=True), 1e-300)
    slope = 1 if form.cap is None else 1 - np.tanh(inner / form.cap) ** 2
    return weights, weights @ value, slope


def wanted_gradients(form, query, key, value, masks, cotangent):
    """Cotangents of query, key and value in float64."""
    weights, _, slope = wanted(form, query, key, value, *masks)
    query, key, value, cotangent = (
        np.asarray(x, np.float64) for x in (query, key, value, cotangent)
    )
    heads, group = key.shape[1], query.shape[1] // key.shape[1]
    keys, values = (np.repeat(x, group, 1) for x in (key, value))
    of_weights = np.einsum("bnle,bnse->bnls", cotangent, values)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    of_scores = of_scores * slope * form.scale
    shared = lambda x: x.reshape(x.shape[0], heads, group, *x.shape[2:]).sum(2)
    of_key = shared(np.einsum("bnls,bnld->bnsd", of_scores, query))
    return of_scores @ keys, of_key, shared(np.einsum("bnls,bnle->bnse", weights, cotangent))


def drawn(seed):
    """A form, arrays, masks and a cotangent of the result."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]
    width, heads, group = pick(16, 40, 64, 80, 128, 192, 256), pick(1, 2, 3), pick(1, 1, 2, 4)
    length, more = pick(128, 130, 197, 256, 384), pick(0, 0, 0, 64, 131)
    causal = bool(rng.random() < 0.6)
    form = Form(
        width**-0.5,
        causal=causal,
        window=pick(None, 1, 50, 300) if causal else None,
        shift=more if causal and rng.random() < 0.7 else 0,
        cap=pick(None, None, 3.0),
        precision="highest",
    )
    dtype = pick(np.float32, np.float32, jnp.bfloat16)
    batch, source = pick(1, 2), length + more
    of_value = pick(width, width, 48)
    shapes = [(heads * group, length, width), (heads, source, width), (heads, source, of_value)]
    arrays = [rng.normal(size=(batch, *s)).astype(dtype) for s in shapes]
    cotangent = rng.normal(size=(batch, heads * group, length, of_value)).astype(dtype)
    masks = pick(
        (),
        (),
        (rng.random((batch, 1, 1, source)) < 0.8,),  # padding
        (rng.normal(size=(1, heads * group, length, source)).astype(np.float32),),  # relative
        (rng.random((1, 1, length, source)) < 0.5,),
    )
    return form, arrays, masks, cotangent


def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 64)
    monkeypatch.setattr(blocks, "LARGE", 0)


@pytest.mark.sample(every=12)
@pytest.mark.parametrize("seed", range(200))
def test_every_way_beside_the_formula(seed, monkeypatch):
    """The TPU's kernel, interpreted; rows in blocks; and all scores at once."""
    small_blocks(monkeypatch)
    form, arrays, masks, cotangent = drawn(seed)
    _, result, _ = wanted(form, *arrays, *masks)
    of = wanted_gradients(form, *arrays, masks, cotangent)
    dtype, sums = arrays[0].dtype, arrays[1].shape[2]
    rtol = tolerance(dtype, sums * arrays[0].shape[-1])
    size = max(
        np.abs(x).max() for x in of
    )  # cotangents of one attention are 0 where it has no choice

    def close(got, want, scale=None):
        assert_close(np.asarray(got, np.float64), want, rtol=rtol, scale=scale)

    interpreted = [functools.partial(x, interpret=True) for x in (tpu.attend, tpu.backward)]
    with jax.default_matmul_precision("highest"):
        for attend, backward in [
            interpreted, (blocks.attend, blocks.backward), (plain.attend, plain.backward),
        ]:  # fmt: skip
            out, log_sums = attend(form, *arrays, *masks)
            close(out, result)
            given = backward(form, *arrays, masks, out, log_sums, cotangent, (True,) * 3)
            for got, want in zip(given, of):
                close(got, want, size)


Q, K, V = (
    np.random.default_rng(i).normal(size=(2, n, 130, 8)).astype(np.float32)
    for i, n in enumerate((4, 2, 2))
)
BIAS = np.random.default_rng(3).normal(size=(1, 4, 130, 130)).astype(np.float32)
FORM = Form(0.3, causal=True, cap=4.0)
bound = functools.partial(primitive.attention, FORM)
formula = lambda *arrays: plain.attend(FORM, *arrays)[0]
total = lambda function: lambda *arrays: (function(*arrays) ** 2).sum()
close = functools.partial(assert_close, reduction=130 * 8)


@pytest.mark.parametrize(
    "masks", [(), (BIAS,), (BIAS[:, :1, :1],), (BIAS[0, 0] > 0,)], ids=range(4)
)
def test_derivatives(masks):
    arrays = (Q, K, V, *masks)
    inner = [i for i, x in enumerate(arrays) if x.dtype != bool]
    of = [jax.jit(jax.grad(total(f), inner))(*arrays) for f in (bound, formula)]
    jax.tree.map(close, *of)
    tangents = [
        np.cos(x) if x.dtype != bool else np.zeros(x.shape, jax.dtypes.float0) for x in arrays
    ]
    jax.tree.map(close, *(jax.jvp(f, arrays, (*tangents,)) for f in (bound, formula)))


def test_second_derivatives():
    """Forward over reverse, and reverse over reverse."""
    slope = lambda f: lambda q: jax.grad(total(f))(q, K, V)
    close(*(jax.jvp(slope(f), (Q,), (np.cos(Q),))[1] for f in (bound, formula)))

    def twice(function):
        slopes = jax.grad(total(function), (0, 1, 2))
        return jax.grad(lambda *x: sum((g**2).sum() for g in slopes(*x)), (0, 1, 2))

    jax.tree.map(close, *(twice(f)(Q, K, V) for f in (bound, formula)))


AXES = [(0, 0, 0, None), (0, None, None, None), (None, 1, 1, 0), (2, 0, None, 0)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_vmap(axes):
    arrays = [
        x if a is None else np.stack([x * f for f in (1, 2, 0.5)], a)
        for x, a in zip((Q, K, V, BIAS), axes)
    ]
    for of in (lambda f: f, lambda f: jax.grad(total(f), (0, 1, 2, 3))):
        jax.tree.map(close, *(jax.jit(jax.vmap(of(f), axes))(*arrays) for f in (bound, formula)))


def test_large_arrays_and_one_row_are_bound_small_ones_and_parts_of_a_shard_map_are_plain():
    names = lambda *shapes: str(
        jax.make_jaxpr(lambda q, k: attention.attend(attention.form_of(q), q, k, k))(
            *map(np.ones, shapes)
        )
    )
    assert "attention[" in names((1, 2, 256, 8), (1, 2, 256, 8))
    assert "attention[" not in names((1, 2, 64, 8), (1, 2, 64, 8))
    assert "attention[" in names((1, 2, 1, 8), (1, 2, 4096, 8))
    assert "attention[" not in names((1, 4, 1, 8), (1, 2, 4096, 8))
    assert "attention[" not in names((1, 2, 1, 8), (1, 2, 64, 8))
    mesh = jax.make_mesh((2,), ("data",), (jax.sharding.AxisType.Auto,))
    part = jax.shard_map(
        lambda q: attention.attend(attention.form_of(q), q, q, q),
        mesh=mesh,
        in_specs=jax.P("data"),
        out_specs=jax.P("data"),
    )
    large = np.random.default_rng(0).normal(size=(2, 2, 256, 8)).astype(np.float32)
    assert "attention[" not in str(jax.make_jaxpr(part)(large))
    close(jax.jit(part)(large), plain.attend(attention.form_of(large), large, large, large)[0])


def lowered(platform, dtype=jnp.bfloat16, devices=1, **limits):
    """The program of a gradient for a platform that is not here."""
    shape = jax.ShapeDtypeStruct((4, 8, 512, 64), dtype)
    if devices > 1:
        mesh = jax.make_mesh(
            (2, devices // 2), ("data", "model"), (jax.sharding.AxisType.Auto,) * 2
        )
        shape = shape.update(sharding=jax.NamedSharding(mesh, jax.P("data", "model")))
    run = lambda q, k, v: attention.attend(attention.form_of(q, **limits), q, k, v)
    grads = jax.grad(lambda *x: run(*x).astype(jnp.float32).sum(), (0, 1, 2))
    return jax.jit(grads).trace(*[shape] * 3).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("devices", [1, 8])
def test_tpus_get_the_kernel(devices):
    """One for the result, one for the queries' cotangent, and one for those of keys and values."""
    text = lowered("tpu", causal=True, devices=devices)
    assert text.count("@tpu_custom_call") == 3
    assert "512x512" not in re.sub(r"dense<.*?>", "", text)  # no array of all scores
    assert (devices > 1) == ("manual_computation" in text)


@pytest.mark.parametrize("devices", [1, 8])
def test_one_row_is_a_product_of_the_matrix_unit(devices):
    """As where a token is decoded: values of CPUs, eight equal rows on a TPU, which XLA divides."""
    random = np.random.default_rng(0)
    query, key, value = (random.normal(size=(8, 4, n, 16)).astype("f4") for n in (1, 300, 300))
    mask = random.random((8, 1, 1, 300)) < 0.5
    form = attention.form_of(query)
    want = plain.attend(form, query, key, value, mask)
    run = jax.jit(lambda *x: attention.attend(form, *x))
    assert_close(run(query, key, value, mask), want[0], reduction=300)
    assert_close(tpu.attend(form, query, key, value, mask), want, reduction=300)
    on = None
    if devices > 1:
        mesh = jax.make_mesh((2, 4), ("d", "m"), (jax.sharding.AxisType.Auto,) * 2)
        on = jax.NamedSharding(mesh, jax.P("d", "m"))
    arrays = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on) for x in (query, key, value)]
    text = run.trace(*arrays, mask).lower(lowering_platforms=("tpu",)).as_text()
    assert "8x4x8x300" in text and "manual_computation" not in text
    assert "8x4x8x300" not in run.lower(query, key, value, mask).as_text()
    slopes = lambda f: jax.grad(lambda *x: jnp.sin(f(*x)).sum(), (0, 1, 2))(query, key, value)
    formula = lambda *x: plain.result(form, *x, mask)
    assert_close(slopes(lambda *x: run(*x, mask)), slopes(formula), reduction=300)


def test_gpus_get_the_kernel():
    text = lowered("cuda", causal=True)
    assert (
        text.count("__cudnn$fmhaSoftmax(") == 1 and text.count("__cudnn$fmhaSoftmaxBackward(") == 1
    )
    assert "__cudnn" not in lowered("cuda", jnp.float32)  # which it has none for


@pytest.mark.parametrize(("capability", "serves"), [("7.5", False), ("8.0", True), ("12.0", True)])
def test_old_gpus_get_blocks(capability, serves, monkeypatch):
    assert cuda.serves(SimpleNamespace(compute_capability=capability)) == serves
    assert cuda.serves(None)
    monkeypatch.setattr(cuda, "serves", lambda device: serves)
    jax.clear_caches()  # of what was lowered before
    assert ("__cudnn" in lowered("cuda", causal=True)) == serves
    jax.clear_caches()


def test_a_program_of_several_platforms():
    """Each platform has its own way in one file, and it runs here."""
    x = np.random.default_rng(0).normal(size=(1, 2, 256, 16)).astype(jnp.bfloat16)
    run = jax.jit(lambda x: attention.attend(attention.form_of(x, causal=True), x, x, x))
    exported = jax.export.export(run, platforms=("cpu", "tpu"))(x)
    assert "tpu_custom_call" in exported.mlir_module()
    assert_close(jax.export.deserialize(exported.serialize()).call(x), run(x))


@pytest.mark.parametrize(
    ("shape", "names"), [((2, 4), "data model"), ((8,), "model"), ((8,), "x"), ((4, 2), "a b")]
)
def test_parts_of_a_mesh(shape, names):
    """Result and cotangents of each device's part, put together, are those of the whole."""
    names = names.split()
    mesh = jax.make_mesh(shape, names, (jax.sharding.AxisType.Auto,) * len(shape))
    q, k, v = (
        np.random.default_rng(i).normal(size=(2, n, 128, 16)).astype(np.float32)
        for i, n in enumerate((8, 4, 4))
    )
    mask = np.random.default_rng(4).random((2, 1, 1, 128)) < 0.8
    out, sums = plain.attend(FORM, q, k, v, mask)
    jax.tree.map(
        close,
        jax.jit(lambda *x: divided.attend(mesh, plain.attend, FORM, *x))(q, k, v, mask),
        [out, sums],
    )
    of = lambda *x: divided.backward(
        mesh, plain.backward, FORM, *x[:3], (mask,), *x[3:], (True,) * 3 + (False,)
    )[:3]
    want = plain.backward(FORM, q, k, v, (mask,), out, sums, np.cos(out))[:3]
    jax.tree.map(close, jax.jit(of)(q, k, v, out, sums, np.cos(out)), [*want])


def test_rows_that_see_nothing():
    mask = np.ones((1, 1, 256, 256), bool)
    mask[..., 3, :] = False
    x = np.random.default_rng(0).normal(size=(1, 2, 256, 8)).astype(np.float32)
    run = lambda x: attention.attend(attention.form_of(x), x, x, x, mask)
    assert not np.asarray(run(x))[:, :, 3].any()
    assert np.isfinite(jax.grad(lambda x: run(x).sum())(x)).all()


@pytest.mark.parametrize("limits", [{"shift": -5}, {"window": 50}])
def test_rows_that_see_nothing_by_their_position(limits):
    """Before the first column, or behind the last one's window: zeros of the TPU's kernel, too."""
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(1, 2, n, 128)).astype(np.float32) for n in (512, 256))
    form = attention.form_of(query, causal=True, **limits)
    narrow = [x.astype(jnp.bfloat16) for x in (query, key, key)]
    assert not form.all_see(512, 256) and not cuda.takes(form, *narrow, ())
    want, _ = plain.attend(form, query, key, key)
    out, _ = tpu.attend(form, query, key, key, interpret=True)
    empty = ~np.asarray(plain.seen(form, 512, 256)).any(1)
    assert empty.any() and not np.asarray(out)[:, :, empty].any()
    np.testing.assert_allclose(out, want, atol=2e-3)


@pytest.mark.parametrize("masks", ["none", "columns", "bias"])
def test_short_rows_in_turn(masks, monkeypatch):
    """A TPU computes as many rows of a batch at a time as have scores that stay in its VMEM."""
    random = np.random.default_rng(0)
    query, key, value = (random.normal(size=(6, h, 130, 16)).astype("f4") for h in (4, 2, 2))
    choices = {
        "none": (),
        "columns": (random.random((6, 1, 1, 130)) < 0.7,),
        "bias": (random.normal(size=(1, 4, 130, 130)).astype("f4"),),
    }
    form, arrays = attention.form_of(query, causal=True), (query, key, value, *choices[masks])
    monkeypatch.setattr(tpu, "VMEM", 2 * 4 * 130 * 130)
    assert tpu._at_once(query, key) == 2
    want, sums = plain.attend(form, *arrays)
    out = tpu.attend(form, *arrays)
    np.testing.assert_allclose(out[0], want, atol=1e-5)
    cotangent = random.normal(size=want.shape).astype("f4")
    more = arrays[3:], want, sums, cotangent, (True, True, True, *[False] * len(arrays[3:]))
    for got, of in zip(
        tpu.backward(form, *arrays[:3], *more), plain.backward(form, *arrays[:3], *more)
    ):
        np.testing.assert_allclose(got, of, atol=1e-4) if of is not None else None
    text = jax.jit(lambda *x: tpu.attend(form, *x)).lower(*arrays).as_text()
    assert "stablehlo.concatenate" in text


def test_rows_of_large_numbers_have_their_gradient():
    """A row whose columns all have the same large number sees them all alike."""
    random = np.random.default_rng(0)
    query, key, value = (random.normal(size=(1, 2, 256, 8)).astype("f4") for _ in range(3))
    mask = np.zeros((1, 1, 256, 256), "f4")
    mask[..., 3, :] = np.finfo("f4").min / 2
    form = attention.form_of(query)
    loss = lambda run: lambda *x: (run(form, *x, mask) ** 2).sum()
    found, want = (
        jax.grad(loss(x), (0, 1, 2))(query, key, value) for x in (attention.attend, plain.result)
    )
    for got, of in zip(found, want):
        np.testing.assert_allclose(got, of, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_are_dropped_a_block_at_a_time(groups, monkeypatch):
    """Values and gradients are those of all weights at once, no array of which is made."""
    monkeypatch.setattr(blocks, "LARGE", 0)
    random = np.random.default_rng(0)
    query, key, value = (random.normal(size=(2, n, 1100, 16)).astype("f4") for n in (4, 2, 2))
    query = query[:, : 2 * groups]
    mask = random.random((2, 1, 1, 1100)) < 0.8
    form = attention.form_of(query, causal=True)
    rate, shape = 0.5, (2, 2, blocks.ROWS * groups, 1100)
    keep = lambda block: jax.random.bernoulli(
        jax.random.fold_in(jax.random.key(0), block), rate, shape
    )

    def drop(weights, block):
        return jnp.where(keep(block)[..., : weights.shape[-2], :], weights / rate, 0)

    def whole(weights):
        kept = jnp.concatenate([keep(i) for i in range(3)], -2)
        return jnp.where(kept[..., : weights.shape[-2], :], weights / rate, 0)

    blockwise = lambda *x: (attention.attend(form, *x, mask, drop=drop) ** 2).sum()
    want = lambda *x: (plain.result(form, *x, mask, drop=whole) ** 2).sum()
    both = [jax.value_and_grad(f, (0, 1, 2))(query, key, value) for f in (blockwise, want)]
    assert_close(*both, reduction=10_000)
    text = jax.jit(jax.grad(blockwise)).lower(query, key, value).as_text()
    assert "x1100x1100xf32" not in text and f"x{blocks.ROWS * groups}x1100xf32" in text


def test_dropped_weights_of_few_scores_stand_at_once():
    query = jnp.ones((1, 2, 256, 8))
    calls = []
    drop = lambda weights, *block: calls.append((weights.shape, block)) or weights
    attention.attend(attention.form_of(query), query, query, query, drop=drop)
    assert calls == [((1, 2, 256, 256), ())]
