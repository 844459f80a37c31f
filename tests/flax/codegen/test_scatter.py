"""Numbers brought to places that arrays tell, in torch's ways to join them."""

import pytest
import torch
from torch import nn

from anyjax.errors import Unsupported
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_values, prepared

pytestmark = pytest.mark.sample(every=15)
INDEX = torch.arange(60).reshape(3, 4, 5) * 7 % 5 % 3


class Scattered(nn.Module):
    """A sixth of the places gets nothing, others get several numbers."""

    def __init__(self, how, dim, include_self):
        super().__init__()
        self.how, self.dim, self.include_self = how, dim, include_self

    def forward(self, x, index, source):
        if self.how == "add":
            return x.scatter_add(self.dim, index, source)
        return x.scatter_reduce(self.dim, index, source, self.how, include_self=self.include_self)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("how", ["add", "sum", "mean", "amax", "amin"])
def test_joined(how, dim, include_self):
    # No number of the source is one of the array: torch divides gradients between them, even if
    # the array's are left out.
    inputs = (drawn(3, 4, 5), INDEX, 2 * drawn(3, 4, 5) + 0.1)
    module = Scattered(how, dim, include_self).eval()
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)
    if dim == 0:
        flat = tuple(x.flatten() for x in inputs)
        _, model = prepared(module, flat)
        assert_same_values(module, model, flat)


def test_products_have_no_gradient_in_jax():
    module = Scattered("prod", 0, True).eval()
    with pytest.raises(Unsupported, match="prod, of which JAX has no gradient"):
        prepared(module, (drawn(3, 4, 5), INDEX, drawn(3, 4, 5)))
    whole = [torch.arange(60).reshape(3, 4, 5) % n for n in (5, 4)]
    _, model = prepared(module, (whole[0], INDEX, whole[1]))
    assert_same_values(module, model, (whole[0], INDEX, whole[1]))


class Buckets(nn.Module):
    def __init__(self, right):
        super().__init__()
        self.right = right
        self.register_buffer("edges", torch.tensor([-1.0, 0.0, 0.5, 2.0]))

    def forward(self, x):
        return torch.bucketize(x, self.edges, right=self.right) * x


@pytest.mark.parametrize("right", [False, True])
def test_which_bucket_a_number_falls_into(right):
    module, x = Buckets(right).eval(), torch.tensor([[-3.0, -1.0, 0.0], [0.5, 0.7, 2.0]])
    _, model = prepared(module, (x,))
    assert_same_values(module, model, (x,))
