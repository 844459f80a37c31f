"""Weights in 8 and 4 bits: how far off, how small, and every use of a Model still there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import WrongArguments, WrongValue
from anyjax.transforms import quantize

pytestmark = pytest.mark.sample(every=3)

X = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))


def size(arrays):
    return sum(x.nbytes for x in jax.tree.leaves(arrays))


@pytest.mark.parametrize(
    "scheme, step, bits", [("int8", 127, 8), ("fp8", 14, 8), ("int4", 7, 4), ("nf4", 6, 4)]
)
def test_each_number_is_off_by_half_a_step_of_its_block(scheme, step, bits):
    model = anyjax.from_torch(network())
    small = quantize(model, scheme)
    opened, _ = small.source.opened(small.params, small.state)
    for name in ("0.weight", "2.weight"):
        want, rows = model.params[name], opened[name]
        block = want.shape[1] if bits == 8 else 64
        cut = lambda x, block=block: x.reshape(x.shape[0], -1, block)
        largest = jnp.abs(cut(want)).max(-1, keepdims=True)
        off = jnp.abs(cut(want - rows))
        # the codes of nf4 lie closer near zero; the widest gap is a bit above a fourth
        assert float((off / largest).max()) <= 1.02 * 0.5 / step * (2 if scheme == "nf4" else 1)
        assert float(off.max()) > 0
        assert small.state[f"{name}.{scheme}"].nbytes == want.size * bits // 8
    assert sorted(small.params) == ["0.bias", "2.bias"]
    assert size(small.state) < size(model.params) * (bits / 32 + 0.04)


@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4", "nf4"])
def test_computes_with_the_rounded_weights(scheme):
    net = network()
    small = quantize(anyjax.from_torch(net), scheme)
    theirs = small.to_torch()(torch.from_numpy(X)).detach()
    np.testing.assert_allclose(small(X), theirs, atol=1e-5)
    slope = jax.jit(jax.grad(lambda p: small.apply(p, X).sum()))(small.params)
    assert float(jnp.abs(slope["0.bias"]).max()) > 0
    both = jax.vmap(lambda x: small.apply(small.params, x))(X)
    np.testing.assert_allclose(both, small(X), atol=1e-5)


@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4", "nf4"])
@pytest.mark.parametrize("block", [None, 8, 32])
def test_one_vector_is_multiplied_by_the_rounded_weights(scheme, block):
    """The CPU does it without opening the matrix; an embedding opens rows."""
    net = nn.Sequential(nn.Embedding(40, 64), nn.Linear(64, 24, bias=False))
    small = quantize(anyjax.from_torch(net), scheme, block=block)
    tables, _ = small.source.opened(small.params, small.state)
    want = tables["0.weight"] @ tables["1.weight"].T
    for ids in ([3], [[39]], [0, 7]):
        got = jax.jit(lambda ids: small.apply({}, ids))(np.array(ids))
        np.testing.assert_allclose(got, want[np.array(ids)], atol=1e-5)
    text = jax.jit(lambda ids: small.apply({}, ids)).lower(np.array([3])).as_text()
    assert "f32[24,64]" not in text and "24x64xf32" not in text.split("dot_general")[-1]


def test_targets_blocks_kernels_and_dtypes():
    model = anyjax.from_torch(network())
    small = quantize(model, "int4", targets=r"^0", block=16)
    assert sorted(small.params) == ["0.bias", "2.bias", "2.weight"]
    assert small.state["0.weight.scale"].shape == (4, 128)
    conv = anyjax.from_torch(nn.Conv2d(4, 6, 3).to(torch.bfloat16))
    image = np.ones((1, 4, 8, 8), jnp.bfloat16)
    out = quantize(conv, "int8")(image)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(out), np.float32(conv(image)), atol=0.05)


def test_rows_of_zeros_stay_zero():
    net = nn.Linear(64, 2, bias=False)
    nn.init.zeros_(net.weight)
    for scheme in ("int8", "fp8", "int4", "nf4"):
        assert not np.asarray(quantize(anyjax.from_torch(net), scheme)(X)).any()


def test_is_saved_and_loaded(tmp_path):
    small = quantize(anyjax.from_torch(network()), "nf4")
    small.save(tmp_path / "net", X)
    again = anyjax.load(tmp_path / "net")
    np.testing.assert_allclose(again(X), small(X), atol=1e-6)
    assert size(again.state) == size(small.state)


def test_equal_sources_share_programs_and_others_do_not():
    model = anyjax.from_torch(network())
    assert quantize(model, "int8").source == quantize(model, "int8").source
    assert quantize(model, "int8").source != quantize(model, "int4").source
    small = quantize(model, "int8")
    assert all(small.train().source.training) and not any(small.eval().source.training)
    assert small.train().eval().source.cache is small.eval().source.cache  # compiled once


@pytest.mark.parametrize(
    "make, error, says",
    [
        (lambda m: quantize(m, "int3"), WrongValue, "int8, fp8, int4, nf4"),
        (lambda m: quantize(m, "int8", targets="nothing"), WrongValue, "matches nothing"),
        (lambda m: quantize(m, "int8", targets="bias"), WrongValue, "matches nothing"),
        (lambda m: quantize(m, "int4", block=48), WrongValue, "blocks of 48"),
        (lambda m: quantize(m, "int4", block=0), WrongValue, "blocks of 0"),
        (lambda m: quantize(quantize(m, "int8"), "int4"), WrongArguments, "already"),
    ],
)
def test_bad_input(make, error, says):
    with pytest.raises(error, match=says):
        make(anyjax.from_torch(network()))


def test_nothing_is_allocated_before_the_error(monkeypatch):
    """The last matrix is the one that does not fit."""
    from anyjax.transforms.packed import Packed

    monkeypatch.setattr(Packed, "pack", lambda *_: pytest.fail("quantized before all was checked"))
    net = nn.Sequential(nn.Linear(64, 63), nn.Linear(63, 8))
    with pytest.raises(WrongValue, match=r"1\.weight has rows of 63"):
        quantize(anyjax.from_torch(net), "int4")
