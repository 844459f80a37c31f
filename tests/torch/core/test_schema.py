"""Operators that write arguments which their schema calls read-only: what they write comes back."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.core.schema import HIDDEN_WRITES
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

aten = torch.ops.aten
X = np.random.default_rng(0).normal(3, 2, (4, 3, 5)).astype(np.float32)
MEAN, VAR = np.arange(3, dtype=np.float32), np.full(3, 1.5, np.float32)


def batch_norm(x, mean, var):
    out = aten.batch_norm(x, None, None, mean, var, True, 0.3, 1e-5, False)
    return out, mean, var


def instance_norm(x, mean, var):
    out = aten.instance_norm(x, None, None, mean, var, True, 0.3, 1e-5, False)
    return out, mean, var


def native_batch_norm(x, mean, var):
    out = aten.native_batch_norm(x, None, None, mean, var, True, 0.3, 1e-5)
    return *out, mean, var


def batch_norm_update_stats(x, mean, var):
    return *aten.batch_norm_update_stats(x, mean, var, 0.3), mean, var


def batch_norm_impl_index(x, mean, var):
    out = aten._batch_norm_impl_index(x, None, None, mean, var, True, 0.3, 1e-5, False)
    return *out[:3], mean, var


def legit(x, mean, var):
    out = aten._native_batch_norm_legit(x, None, None, mean, var, True, 0.3, 1e-5)
    return *out, mean, var


def with_update(x, mean, var):
    out = aten._batch_norm_with_update(x, None, None, mean, var, 0.3, 1e-5)
    return *out[:3], mean, var


def read_again(x, mean, var):
    """What a second call sees is what the first one wrote."""
    x = aten.batch_norm(x, None, None, mean, var, True, 0.3, 1e-5, False)
    return aten.batch_norm(x + 1, None, None, mean, var, False, 0.3, 1e-5, False), mean, var


FUNCTIONS = [
    batch_norm,
    instance_norm,
    native_batch_norm,
    batch_norm_update_stats,
    batch_norm_impl_index,
    legit,
    with_update,
    read_again,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_written_values_come_back(function):
    want = function(*[torch.from_numpy(x.copy()) for x in (X, MEAN, VAR)])
    model = anyjax.from_torch(function)
    got = jax.jit(lambda *xs: model.apply({}, *xs))(X, MEAN, VAR)
    assert not np.allclose(want[-2], MEAN), "torch wrote nothing: the test tests nothing"
    assert_close(tuple(got), tuple(want), reduction=20)


@pytest.mark.parametrize("op", HIDDEN_WRITES, ids=str)
def test_the_schema_hides_it_and_a_test_exists(op):
    named = {a.name: a for a in op._schema.arguments}
    assert not any(named[name].is_write for name in HIDDEN_WRITES[op])
    assert op._schema.name.removeprefix("aten::") in {f.__name__ for f in FUNCTIONS}


NORMS = {
    "BatchNorm1d": (torch.nn.BatchNorm1d(3), (4, 3)),
    "BatchNorm1d, no momentum": (torch.nn.BatchNorm1d(3, momentum=0.0), (4, 3, 5)),
    "BatchNorm2d": (torch.nn.BatchNorm2d(3), (2, 3, 4, 5)),
    "BatchNorm3d, no affine": (torch.nn.BatchNorm3d(3, affine=False), (2, 3, 2, 2, 3)),
    "InstanceNorm2d": (
        torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        (2, 3, 4, 5),
    ),
    "SyncBatchNorm": (torch.nn.SyncBatchNorm(3), (2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", NORMS)
def test_modules_return_their_statistics_as_state(name):
    module, shape = NORMS[name]
    module.train()
    x = np.random.default_rng(1).normal(1, 2, shape).astype(np.float32)
    model = anyjax.from_torch(module).train()
    out, state = model.apply(model.params, x, mutable=True)
    again, state2 = model.apply(model.params, x, state=state, mutable=True)
    assert_close(out, module(torch.from_numpy(x)), reduction=int(np.prod(shape)))
    assert_close(dict(state), dict(module.named_buffers()), reduction=int(np.prod(shape)))
    module(torch.from_numpy(x))
    assert_close(dict(state2), dict(module.named_buffers()), reduction=int(np.prod(shape)))
    assert_close(again, out)
    evaluated = model.eval().apply(model.params, x, state=state2)
    assert_close(evaluated, module.eval()(torch.from_numpy(x)), reduction=int(np.prod(shape)))
