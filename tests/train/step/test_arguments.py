"""Arguments in another order."""

import optax
import pytest

import anyjax
from anyjax.errors import WrongArguments
from anyjax.train import TrainState, evaluate, fit, make_step
from tests.train.nets import begin, mlp, mse, rows


def said(call, *args):
    with pytest.raises(WrongArguments) as raised:
        call(*args)
    assert raised.value.why and raised.value.do
    return raised.value.what


def test_fit():
    (state, step), data = begin(), [rows()]
    assert "step is a list, batches is a Step" in said(fit, state, data, step)
    assert "state is a Step, step is a TrainState" in said(fit, step, state, data)
    assert "step is a function" in said(fit, state, mse, data)
    assert said(fit, state.model, step, data) == "fit got a Model as its state"


def test_evaluate():
    state, data = begin()[0], [rows()]
    assert "batches is a function, metric_fn is a list" in said(evaluate, state, mse, data)
    assert "state is a list" in said(evaluate, data, state, mse)


def test_make_step_and_create():
    model, tx = anyjax.from_torch(mlp()), optax.sgd(0.1)
    assert "loss_fn is a GradientTransformation" in said(make_step, tx, mse)
    assert "model is a GradientTransformation" in said(TrainState.create, tx, model)


def test_what_can_be_indexed_is_data():
    class Indexed:
        def __getitem__(self, i):
            if i:
                raise IndexError
            return rows()

    assert int(fit(*begin(), Indexed()).step) == 1
    assert evaluate(begin()[0], Indexed(), mse)["loss"] > 0
