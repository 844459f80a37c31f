import jax
import numpy as np
import pytest
import torch
from scipy.special import airy

import tojax
from tests.tolerance import assert_close

FUNCTIONS = {
    "polygamma": lambda x: torch.polygamma(1, x),
    "zeta": lambda x: torch.special.zeta(2.5, x),
    "elu": torch.nn.functional.elu,
    "celu": lambda x: torch.celu(x, 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_is_reverse_mode(name):
    function = FUNCTIONS[name]
    x = np.array([0.3, 2.0, 9.0] if name in ("polygamma", "zeta") else [-9.4, -1.0, 3.0])
    given = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    (want,) = torch.autograd.grad(function(given).sum(), given)
    model, x = tojax.from_torch(function), x.astype(np.float32)
    _, got = jax.jvp(lambda x: model.apply({}, x), (x,), (np.ones_like(x),))
    assert_close(got / want.numpy(), np.ones(3, np.float32), reduction=16)


def test_airy_where_torch_is_off():
    """torch's expansion for negative arguments is off by 2.8e-6 where it begins, in float64 too."""
    x = np.linspace(-2.5, -1.5, 65, dtype=np.float32)
    assert_close(tojax.from_torch(torch.special.airy_ai)(x), airy(x)[0], reduction=4)
