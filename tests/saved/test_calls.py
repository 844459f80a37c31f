"""Calls: which program serves one, and what comes out of it beside arrays."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import (
    DataDependent,
    ForwardFailed,
    MissingRng,
    StaticArgument,
    Unsupported,
    WrongArguments,
)

pytestmark = pytest.mark.sample(every=2)

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
INTEGERS = np.arange(4, dtype=np.int32)


def loaded(folder, function, *args, **options):
    anyjax.from_torch(function).save(folder / "m", *args, **options)
    return anyjax.load(folder / "m")


def test_equal_numbers_of_two_types_are_two_programs(tmp_path):
    times = lambda x, n: x * n
    model = anyjax.from_torch(times)
    wanted = [model(INTEGERS, n) for n in (2, 2.0)]
    model.save(tmp_path / "m")
    back = anyjax.load(tmp_path / "m")
    for n, want in zip((2, 2.0), wanted):
        assert back(INTEGERS, n).dtype == want.dtype
    one = loaded(tmp_path, times, INTEGERS, 2)
    for other in (2.0, 3):
        with pytest.raises(WrongArguments, match=f"n is {other}, not 2"):
            one(INTEGERS, other)
    with pytest.raises(WrongArguments, match="n is true, not 1"):
        loaded(tmp_path, times, INTEGERS, 1)(INTEGERS, True)
    with pytest.raises(WrongArguments, match=r"n is -0\.0, not 0\.0"):
        loaded(tmp_path, times, X, 0.0)(X, -0.0)
    assert np.isnan(loaded(tmp_path, times, X, float("nan"))(X, float("nan"))).all()


@pytest.mark.parametrize("value", [2j, b"text"])
def test_values_that_json_does_not_hold(tmp_path, value):
    with pytest.raises(Unsupported, match=f"the argument n is a {type(value).__name__}"):
        loaded(tmp_path, lambda x, n: x, X, value)
    with pytest.raises(Unsupported, match=f"a part of the output is a {type(value).__name__}"):
        loaded(tmp_path, lambda x: (x, value), X)
    with pytest.raises(Unsupported, match="a part of the output is a dtype"):
        loaded(tmp_path, lambda x: x.dtype, X)
    with pytest.raises(Unsupported, match="a key of the output is a tuple"):
        loaded(tmp_path, lambda x: {(1, 2): x}, X)
    assert not any(tmp_path.iterdir())


def test_arrays_whose_values_decide(tmp_path):
    model = anyjax.from_torch(lambda x, shape: x.reshape([int(n) for n in shape]))
    with pytest.warns(StaticArgument):
        model(X, np.array([2, 6]))
    model.save(tmp_path / "m")
    assert anyjax.load(tmp_path / "m")(X, np.array([2, 6])).shape == (2, 6)
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (X, np.array([2, 6]))]
    with pytest.raises(DataDependent, match="needs the values of shape"):
        model.save(tmp_path / "n", *specs)
    assert not (tmp_path / "n").exists()


def test_dicts_keep_their_keys(tmp_path):
    assert [*loaded(tmp_path, lambda x: {1: x, 0: x}, X)(X)] == [1, 0]
    assert [*loaded(tmp_path, lambda x: OrderedDict(b=x, a=x), X)(X)] == ["b", "a"]


class Pair:
    def __init__(self, keys, values):
        self.keys, self.values = keys, values


def test_fields_with_the_names_of_methods(tmp_path):
    """As the layers of a cache have."""
    back = loaded(tmp_path, lambda x: Pair(x, x + 1), X)
    out = back(X)
    np.testing.assert_array_equal(out.keys, X)
    np.testing.assert_array_equal(out.values, X + 1)
    assert jax.tree.map(jnp.shape, out) == {"keys": (4, 3), "values": (4, 3)}
    with pytest.raises(AttributeError, match="others"):
        _ = out.others


def test_keys_that_were_saved_and_others(tmp_path):
    drop = torch.nn.Dropout(0.5).train()
    key = jax.random.key(3)
    model = anyjax.from_torch(drop)
    want = model(X, rng=key)
    back = loaded(tmp_path, drop, X, rng=key)
    np.testing.assert_array_equal(back(X, rng=key), want)
    with pytest.raises(MissingRng, match="saved with a key"):
        back(X)
    with pytest.raises(WrongArguments, match="rng is a key of rbg"):
        back(X, rng=jax.random.key(0, impl="rbg"))
    rbg = jax.random.key(3, impl="rbg")
    np.testing.assert_array_equal(loaded(tmp_path, drop, X, rng=rbg)(X, rng=rbg), model(X, rng=rbg))
    relu = torch.nn.ReLU()  # as the model itself, it does not mind a key
    np.testing.assert_array_equal(loaded(tmp_path, relu, X)(X, rng=key), np.maximum(X, 0))


def test_a_call_with_a_traced_key_is_saved(tmp_path):
    model, key = anyjax.from_torch(torch.nn.Dropout(0.5).train()), jax.random.key(3)
    want = jax.jit(lambda key: model(X, rng=key))(key)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(anyjax.load(tmp_path / "m")(X, rng=key), want)


def test_a_check_of_values_is_part_of_the_program(tmp_path):
    """Also where the output has no floats, which would be NaN."""

    def double(x):
        torch._assert_async((x > 0).all(), "not positive")
        return 2 * x

    back = loaded(tmp_path, double, INTEGERS)
    assert back(INTEGERS + 1).tolist() == [2, 4, 6, 8]
    for call in (back, lambda x: back.apply(back.params, x)):
        with pytest.raises(ForwardFailed, match="a check does not hold"):
            call(INTEGERS - 1)


def test_only_entries_that_a_later_call_would_miss_are_warned_of(tmp_path, recwarn):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(4, 3))

        def forward(self, x):
            self.last.copy_(x)
            return 2 * x

    loaded(tmp_path, Last(), X)(X)
    assert not recwarn.list


def test_weights_that_do_not_fit(tmp_path):
    back = loaded(tmp_path, torch.nn.Linear(3, 2), X)
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), back.params)
    with pytest.raises(WrongArguments, match=r"bias is bfloat16\[2\], not float32\[2\]"):
        back.with_params(narrow)(X)
    with pytest.raises(WrongArguments, match="bias is missing; other is unknown"):
        back.with_params({"weight": back.params["weight"], "other": X})(X)


def test_torch_tensors(tmp_path):
    tensor = torch.from_numpy(X).requires_grad_()
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    model.save(tmp_path / "m", tensor, shapes={"input": "batch, _"})
    back = anyjax.load(tmp_path / "m")
    for got in (back(tensor), back.apply(back.params, tensor)):
        np.testing.assert_allclose(got, model(X), rtol=1e-6)
