"""Buffers whose values decide shapes: known while tracing, state where forward writes them."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent, StateDropped, Unsupported
from tests.tolerance import assert_close

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Padded(torch.nn.Module):
    """As causal convolutions of codecs are written: sizes are buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("left", torch.tensor(2))
        self.register_buffer("sides", torch.tensor([1, 3]))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        self.calls += 1
        x = torch.nn.functional.pad(x, (int(self.left), 0))
        return torch.nn.functional.pad(x, self.sides.tolist()) * self.scale


def padded(x):
    return np.pad(x, ((0, 0), (3, 3))) * 2


def test_a_buffer_decides_a_shape_under_jit():
    model = anyjax.from_torch(Padded())
    run = jax.jit(lambda params, x: model.apply(params, x, mutable=True))
    out, state = run(model.params, X)
    assert_close(out, padded(X))
    assert int(state["calls"]) == 1
    again = model.with_state(state)
    assert int(again.apply(model.params, X, mutable=True)[1]["calls"]) == 2


@pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped")
def test_model_makes_buffers_static_by_themselves():
    model = anyjax.from_torch(Padded())
    assert_close(model(X), padded(X))
    other = model.with_state({**model.state, "left": jax.numpy.int32(0)})
    assert other(X).shape == (2, 7)
    assert model(X).shape == (2, 9)


def test_traced_state_that_decides_is_an_error():
    model = anyjax.from_torch(Padded())
    call = jax.jit(lambda state: model.apply(model.params, X, state=state, mutable=True))
    with pytest.raises(DataDependent, match="the state"):
        call(model.state)


def test_counters_go_on_being_state():
    model = anyjax.from_torch(torch.nn.BatchNorm1d(3).train())
    step = jax.jit(lambda state: model.apply(model.params, X, state=state, mutable=True)[1])
    state = step(step(model.state))
    assert int(state["num_batches_tracked"]) == 2
    assert step._cache_size() == 1


def test_a_buffer_written_in_a_checkpoint():
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.tensor(3))
            self.register_buffer("size", torch.tensor(2))

        def count(self, x):
            self.calls += 1
            return x.repeat(1, int(self.size)) * self.calls

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.count, x, use_reentrant=False)

    model = anyjax.from_torch(Counted())
    out, state = jax.jit(lambda x: model.apply({}, x, mutable=True))(X)
    assert_close(out, np.tile(X, 2) * 4)
    assert {k: int(v) for k, v in state.items()} == {"calls": 4, "size": 2}


def test_a_mask_decides_and_not_what_it_selects_from():
    def forward(x, mask):
        return (x * 2)[mask].tolist()

    with pytest.raises(DataDependent) as caught:
        jax.jit(lambda x, mask: anyjax.from_torch(forward).apply({}, x, mask))(X, X > 2)
    assert caught.value.arguments == ("mask",)


class Longest(torch.nn.Module):
    """Keeps the largest sum, until it starts anew with a number."""

    def __init__(self, anew=0):
        super().__init__()
        self.largest, self.anew = 0, anew

    def forward(self, x, start=False):
        if start:
            self.largest = self.anew
        elif x.sum() > self.largest:
            self.largest = x.sum()
        return x if start else x * self.largest


def test_attributes_turn_from_numbers_to_arrays_and_back():
    module = Longest()
    model, state = anyjax.from_torch(Longest()), {}
    call = lambda s, x, start: model.apply({}, x, start=start, state=s, mutable=True)
    run = jax.jit(call, static_argnums=2)
    for factor, start in ((1, False), (3, False), (2, False), (1, True), (2, False)):
        out, state = run(state, X * factor, start)
        assert_close(out, module(torch.tensor(X * factor), start))
        assert float(state["largest"]) == float(module.largest) if state else module.largest == 0
    model = anyjax.from_torch(Longest(None))
    out, state = model.apply({}, X, mutable=True)
    with pytest.raises(Unsupported, match="None in the place of the tensor largest"):
        model.apply({}, X, start=True, state=state, mutable=True)


class Turns(torch.nn.Module):
    """Calls another layer each time."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.current = self.a

    def forward(self, x):
        y = self.current(x)
        self.current = self.b
        return y


def test_submodules_that_forward_exchanges_are_put_back():
    """A trace never begins with what another one left."""
    module = Turns()
    model, x = anyjax.from_torch(module), np.ones((1, 2), np.float32)
    with pytest.warns(StateDropped, match="forward changes current"):
        first = model.apply(model.params, x)
    np.testing.assert_array_equal(model.apply(model.params, x), first)
    np.testing.assert_allclose(first, module(torch.from_numpy(x)).detach(), rtol=1e-6)


class Sparse(torch.nn.Module):
    """Holds tensors that JAX has no arrays for, as openai-whisper does."""

    def __init__(self, reads: bool):
        super().__init__()
        self.reads = reads
        self.register_buffer("heads", torch.eye(3).to_sparse(), persistent=False)

    def forward(self, x):
        return x @ self.heads.to_dense() if self.reads else x


@pytest.mark.parametrize("reads", [False, True])
def test_buffers_without_arrays_stay_torchs(reads):
    model = anyjax.from_torch(Sparse(reads))
    assert not model.state
    assert_close(model(X), X)
