"""Optimizers' operators: what they write, at once, in turn and without a rule's branches."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import anyjax
from anyjax.tensorflow.core.private import op_def_of
from anyjax.tensorflow.state.optimizers import ATTRIBUTES, RULES
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
GRAD = RNG.standard_normal((4, 3)).astype(np.float32)
NUMBERS = {
    "lr": 0.1, "alpha": 0.3, "momentum": 0.9, "beta1": 0.8, "beta2": 0.9, "beta1_power": 0.7,
    "beta2_power": 0.6, "epsilon": 0.01, "rho": 0.85, "l1": 0.05, "l2": 0.2, "l2_shrinkage": 0.1,
    "lr_power": -0.5, "sign_decay": 0.4, "beta": 0.7, "logbase": 1.1, "global_step": 3,
}  # fmt: skip


def resources(op):
    return [x.name for x in op_def_of(op).input_arg if x.type == tf.resource.as_datatype_enum]


class Training(tf.Module):
    """One step of an operator on variables of its own."""

    def __init__(self, op, flags, numbers, rows):
        self.op, self.flags, self.rows = op, flags, rows
        self.held = [
            tf.Variable(RNG.random((4, 3)).astype(np.float32) + 0.5 - (name == "var"), name=name)
            for name in resources(op)
        ]
        names = [x.name for x in op_def_of(op).input_arg]
        self.rest = {n: v for n, v in {**NUMBERS, **numbers}.items() if n in names}
        self.grad = "delta" if "delta" in names else "grad"

    def __call__(self, grad, indices=None):
        rest = {k: tf.constant(v, tf.int64 if k == "global_step" else tf.float32)
                for k, v in self.rest.items()}  # fmt: skip
        rest |= {v: x.handle for v, x in zip(resources(self.op), self.held)}
        indices = self.rows if indices is None else indices
        rest |= {} if indices is None else {"indices": indices}
        getattr(tf.raw_ops, self.op)(**rest, **self.flags, **{self.grad: grad})
        return tf.identity(self.held[0])


def assert_same_step(op, *args, flags=None, numbers=None, rows=None):
    """Both sides after the same call."""
    module = Training(op, flags or {}, numbers or {}, rows)
    model = anyjax.from_tensorflow(module, *args)
    variables = {**model.params, **model.state}
    out, new = model.apply(variables, *args, mutable=True)
    want = module(*map(tf.constant, args))
    assert_close(out, want.numpy(), reduction=64)
    for variable in module.held:
        name = variable.name.partition(":")[0]
        assert_close(new[name], variable.numpy(), reduction=64)


def flags_of(op):
    """Every combination of the operator's flags."""
    names = [a.name for a in op_def_of(op).attr if a.name in ATTRIBUTES]
    return [dict(zip(names, v)) for v in itertools.product([False, True], repeat=len(names))]


@pytest.mark.parametrize("name", RULES)
def test_dense(name):
    op = f"ResourceApply{name}"
    for flags in flags_of(op):
        assert_same_step(op, GRAD, flags=flags)


@pytest.mark.parametrize(
    "name", ["ProximalGradientDescent", "ProximalAdagrad", "AdagradDA", "Ftrl"]
)
def test_without_the_first_penalty(name):
    assert_same_step(f"ResourceApply{name}", GRAD, numbers={"l1": 0.0})
    assert_same_step(f"ResourceApply{name}", GRAD, numbers={"l1": 2.0})


def test_another_power():
    assert_same_step("ResourceApplyFtrl", GRAD, numbers={"lr_power": -0.3})


SPARSE = [name for name in RULES if op_def_of(f"ResourceSparseApply{name}") is not None]


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name):
    op = f"ResourceSparseApply{name}"
    for flags in flags_of(op)[-1:]:
        assert_same_step(op, GRAD[:3], np.array([2, 0, 3], np.int32), flags=flags)
        assert_same_step(op, GRAD[:3], np.array([2, 0, 2], np.int64), flags=flags)


def test_sparse_with_known_rows():
    for rows in ([1, 0], [1, 1]):
        assert_same_step("ResourceSparseApplyAdagrad", GRAD[:2], rows=np.array(rows, np.int32))
