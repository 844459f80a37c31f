"""Dtypes and values of integers and of 64-bit types, with JAX's x64 off and on."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import AnyjaxError, Unsupported
from anyjax.torch.core import interop

pytestmark = pytest.mark.sample(every=5)

BIG = 2**40 + 3
INTS = torch.arange(6).reshape(2, 3)
BOOLS = INTS > 2
CASES = {
    "sum of int32": (lambda x: x.sum(), INTS.int()),
    "sum of bools": (lambda x: x.sum(0), BOOLS),
    "prod of uint8": (lambda x: x.prod(), INTS.to(torch.uint8)),
    "cumsum of int16": (lambda x: x.cumsum(1), INTS.short()),
    "int64 by int64": (lambda x: x / (x + 1), INTS),
    "int64 by a float": (lambda x: x * 0.5, INTS),
    "int32 and int64": (lambda x: x + x.int(), INTS),
    "int64 and a 0-d float64": (lambda x: x + torch.tensor(0.5, dtype=torch.float64), INTS),
    "float32 and a 0-d float64": (lambda x: x + torch.tensor(0.5).double(), INTS.float()),
    "float32 and int64": (lambda x: x + x.long(), INTS.float()),
    "float64 and float32": (lambda x: x + x.float(), INTS.double()),
    "sine of int64": (lambda x: x.sin(), INTS),
    "sine of bools": (lambda x: x.sin(), BOOLS),
    "mean in float64": (lambda x: x.mean(dtype=torch.float64), INTS),
    "softmax in float64": (lambda x: torch.softmax(x, 0, torch.float64), INTS),
    "indices": (lambda x: x.max(1), INTS.float()),
    "indices of windows": (
        lambda x: torch.nn.functional.max_pool1d(x, 2, return_indices=True),
        INTS.float(),
    ),
    "buckets in int32": (lambda x: torch.bucketize(x, x[0], out_int32=True), INTS),
    "buckets": (lambda x: torch.bucketize(x, x[0]), INTS),
    "exponents": (lambda x: torch.frexp(x), INTS.float()),
    "status of a factorisation": (lambda x: torch.linalg.cholesky_ex(x), torch.eye(2)),
    "count": (lambda x: torch.count_nonzero(x), INTS.int()),
    "places": (lambda x: torch.nonzero(x), INTS.int()),
    "unique": (lambda x: torch.unique(x, return_inverse=True), INTS.int()),
    "shift of int32": (lambda x: x << 3, INTS.int()),
    "power of bools": (lambda x: x**2, BOOLS),
    "size": (lambda x: torch.full((), x.shape[0]) + x, INTS),
    "large factory": (lambda x: torch.arange(70_000)[-3:] + x, INTS),
}
LARGE = {
    "constant": lambda x: x + torch.tensor([BIG]),
    "number": lambda x: x * BIG,
    "number on the left": lambda x: BIG - x,
    "base of a power": lambda x: BIG**x,
    "shift": lambda x: x << 35,
    "fill": lambda x: x.masked_fill(x > 1, BIG),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1), value=BIG),
    "comparison": lambda x: x < BIG,
    "small arange": lambda x: torch.arange(BIG, BIG + 3) + x,
    "large arange": lambda x: torch.arange(2**31 - 70_000, 2**31 + 2)[-3:] + x,
    "factory": lambda x: torch.full((70_000,), BIG)[:3] + x,
}


def seen_by(function):
    """``function``, and a list that gets the dtypes of its outputs as torch code sees them."""
    dtypes = []

    def call(x):
        out = function(x)
        dtypes[:] = [t.dtype for t in (out if isinstance(out, tuple) else (out,))]
        return out

    return call, dtypes


@pytest.mark.parametrize("x64", [False, True], ids=["narrow", "x64"])
@pytest.mark.parametrize("name", CASES)
def test_dtypes_are_torchs_own(name, x64):
    function, x = CASES[name]
    want = torch.utils._pytree.tree_leaves(function(x))
    call, dtypes = seen_by(function)
    with jax.enable_x64(x64):
        got = jax.tree.leaves(anyjax.from_torch(call).apply({}, x))
        wanted = [interop.to_jax(w) for w in want]
    assert dtypes == [w.dtype for w in want]
    assert [g.dtype for g in got] == [w.dtype for w in wanted]
    for w, g in zip(wanted, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6)


@pytest.mark.parametrize("name", LARGE)
def test_numbers_beyond_32_bits(name):
    x = np.arange(3)
    want = LARGE[name](torch.tensor(x))
    with pytest.raises(Unsupported, match="jax_enable_x64"), jax.enable_x64(False):
        anyjax.from_torch(LARGE[name])(x)
    with jax.enable_x64(True):
        got = anyjax.from_torch(LARGE[name])(x)
        assert got.dtype == want.numpy().dtype
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_inputs_beyond_32_bits(dtype):
    model = anyjax.from_torch(lambda x: x.clone())
    for x in (np.array([1, BIG], dtype), np.array(BIG, dtype)):
        with jax.enable_x64(False):
            for call in (model, lambda x: model.apply({}, x)):
                with pytest.raises(Unsupported, match=str(BIG)):
                    call(x)
        with jax.enable_x64(True):
            assert model(x).tolist() == x.tolist()


def test_a_saved_model_refuses_inputs_beyond_32_bits(tmp_path):
    with jax.enable_x64(False):
        anyjax.from_torch(lambda x: x + 1).save(tmp_path / "add", np.arange(2))
        saved = anyjax.load(tmp_path / "add")
        assert saved(np.arange(2)).tolist() == [1, 2]
        with pytest.raises(Unsupported, match=str(BIG)):
            saved(np.array([1, BIG]))


def test_limits_of_64_bits_stand_for_no_limit():
    limit = np.iinfo(np.int64).max
    with jax.enable_x64(False):
        model = anyjax.from_torch(lambda x: x.clamp(max=torch.iinfo(x.dtype).max))
        assert model(np.array([1, limit])).tolist() == [1, np.iinfo(np.int32).max]


def test_a_number_that_torch_refuses_too():
    with jax.enable_x64(True), pytest.raises(AnyjaxError, match="torch refuses it"):
        anyjax.from_torch(lambda x: x.int() + BIG)(np.arange(2))


def test_new_memory_is_no_old_memory():
    """As a constant of the program it would change from trace to trace, and may not fit 32 bits."""

    def function(x):
        torch.full((3,), BIG)  # freed at once, so that the next tensor gets its memory
        return torch.empty(3, dtype=torch.int64) + x

    with jax.enable_x64(True):
        assert anyjax.from_torch(function)(np.arange(3)).tolist() == [0, 1, 2]
