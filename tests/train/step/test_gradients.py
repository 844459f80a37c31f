import jax
import numpy as np
import optax

from anyjax.train.step.gradients import Gradients
from anyjax.train.step.loss_scale import LossScale
from tests.tolerance import assert_close
from tests.train.nets import mlp, mse, rows, stateful


def test_they_are_those_of_jax():
    model, state = stateful(mlp(), optax.sgd(0.1))
    out, grads = Gradients(mse)(state, rows())
    loss = lambda params: np.mean((model.apply(params, rows()[0]) - rows()[1]) ** 2)
    assert_close((out.loss, grads), jax.value_and_grad(loss)(model.params), rtol=1e-6)


def test_a_scale_is_taken_out_again():
    _, state = stateful(mlp(), optax.sgd(0.1))
    plain = Gradients(mse)(state, rows())
    scaled = Gradients(mse)(state.replace(loss_scale=LossScale.initial(256.0)), rows())
    assert_close(scaled, plain, rtol=1e-6)


def test_part_i_has_every_nth_row_from_i_on():
    from anyjax.train.step.gradients import _strided_split

    assert _strided_split(np.arange(6), 3).tolist() == [[0, 3], [1, 4], [2, 5]]
