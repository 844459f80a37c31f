"""Bytes as the numbers that they stand for, beside dtypes that JAX has."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from torch import nn

import anyjax
from anyjax.transforms import quantize
from anyjax.transforms.numbers import FP4, LOADED, NF4, pairs

BYTES = np.arange(256, dtype=np.uint8)


def test_fp8():
    """Every byte but those of NaN."""
    (ours,) = LOADED["fp8"].numbers(jnp.asarray(BYTES))
    theirs = BYTES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    known = np.isfinite(theirs)
    assert known.sum() == 254 and (np.asarray(ours)[known] == theirs[known]).all()


def test_int4():
    """Two in a byte, the first in the low bits; packed and opened again."""
    low, high = LOADED["int4"].numbers(jnp.asarray(BYTES).view(jnp.int8))
    signed = lambda x: ((x.astype(np.int32) & 15) ^ 8) - 8
    assert (np.asarray(low) == signed(BYTES)).all()
    assert (np.asarray(high) == signed(BYTES >> 4)).all()
    values = jnp.asarray(signed(BYTES), jnp.int8)[:, None]
    first, second = LOADED["int4"].numbers(pairs(values))
    assert (jnp.stack([first, second], 1).reshape(-1, 1) == values).all()


def test_codes():
    """Sixteen numbers each, the largest 1."""
    codes = LOADED["nf4"].codes
    assert [*codes] == [float(x) for x in NF4.split()] and sorted(codes) == [*codes]
    assert len(FP4) == 8 and max(FP4) == 1
    low, _ = LOADED["nf4"].numbers(jnp.asarray(BYTES))
    assert np.allclose(low, np.asarray(codes, np.float32)[BYTES & 15])


def test_qwix_has_the_same_codes():
    """Its rounding leaves them as they are."""
    codes = jnp.arange(16, dtype=jnp.uint8)
    low, high = jax.jit(LOADED["nf4"].numbers)(codes | (codes << 4))
    np.testing.assert_array_equal(low, high)
    model = anyjax.from_torch(nn.Linear(16, 1)).with_params({"weight": low[None], "bias": low[:1]})
    small = quantize(model, "nf4", block=16)
    opened, _ = small.source.opened(small.params, small.state)
    np.testing.assert_array_equal(opened["weight"][0], low)
