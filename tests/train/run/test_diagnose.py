import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from anyjax.errors import Diverged
from anyjax.train import fit, make_step
from anyjax.train.run.diagnose import origin
from anyjax.train.step.gradients import Gradients
from tests.train.nets import mlp, mse, rows, stateful


class Root(torch.nn.Module):
    """NaN for negative inputs."""

    def forward(self, x):
        return torch.sqrt(x)


def found(module, batch, loss=mse):
    return origin(Gradients(loss), stateful(module, optax.sgd(0.1))[1], batch)


def test_a_module_is_named():
    x, y = rows()
    module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Sequential(Root()))
    assert found(module, (x, y)) == "sqrt makes NaN in 1/0"


class Flat(torch.nn.Module):
    """Zero, with a gradient that is 0 * infinity."""

    def forward(self, x):
        return torch.sqrt(x * 0)


def test_a_gradient_is_found_where_the_loss_is_finite():
    module = torch.nn.Sequential(torch.nn.Linear(4, 2), Flat())
    assert found(module, rows()) == "mul makes NaN in 1"


def test_batch_and_params_come_first():
    x, y = rows()
    x[3, 1] = np.inf
    assert found(mlp(), (x, y)) == "batch[0] holds infinity"
    module = mlp()
    torch.nn.init.constant_(module[0].bias, torch.nan)
    assert found(module, rows()) == "params['0.bias'] holds NaN"


def test_infinity_in_the_loss_itself():
    loss = lambda model, batch: -jnp.log(jnp.zeros(())) + mse(model, batch)
    assert found(mlp(), rows(), loss) == "log makes infinity"


def test_fit_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    _, state = stateful(mlp(), optax.sgd(0.1))
    step = make_step(mse, optax.sgd(0.1))
    x, y = rows()
    batches = [(x, y)] * 7 + [(x * np.nan, y)] + [(x, y)] * 4
    with pytest.raises(Diverged, match=r"step 8: the loss is nan") as error:
        fit(state, step, batches, folder=tmp_path, every=3)
    assert "batch[0] holds NaN" in str(error.value)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["3", "6"]


def test_a_scale_that_cannot_shrink_any_more_stops_as_well():
    _, state = stateful(mlp(), optax.sgd(0.1))
    step = make_step(mse, optax.sgd(0.1), compute_dtype="float16", loss_scale=4.0)
    x, y = rows()
    with pytest.raises(Diverged, match="batch\\[0\\] holds NaN"):
        fit(state, step, [(x * np.nan, y)] * 5)
