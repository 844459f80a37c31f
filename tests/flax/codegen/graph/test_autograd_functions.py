"""Functions of torch with a backward of their own."""

import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.flax.codegen.graph.autograd_functions import check_gradients

pytestmark = pytest.mark.sample(every=15)

X = torch.linspace(-2, 2, 12).view(3, 4)


class Square(torch.autograd.Function):
    """Its backward is the derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class Through(torch.autograd.Function):
    """Its backward is that of the identity."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Later(torch.autograd.Function):
    """The context comes in a method of its own."""

    @staticmethod
    def forward(x):
        return 3 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


class Net(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer, self.function = torch.nn.Linear(4, 4), function

    def forward(self, x):
        return self.function.apply(self.layer(x))


@pytest.mark.parametrize("function", [Square, Later])
def test_the_derivative_in_other_words(function):
    check_gradients(Net(function), (X,), {})
    apply = torch.autograd.Function.apply
    check_gradients(Net(function), (X,), {})
    assert torch.autograd.Function.apply == apply


def test_another_gradient_is_refused():
    with pytest.raises(
        Unsupported, match=r"Through has a gradient[^$]*graph/test_autograd_functions.py:\d+"
    ):
        check_gradients(Net(Through), (X,), {})
    with pytest.raises(Unsupported, match="Through"):
        anyjax.flax.source(Net(Through).eval(), X)


def test_written_where_it_is_the_same():
    assert "class Net" in anyjax.flax.source(Net(Square).eval(), X)


def test_the_module_is_left_as_it_was():
    net = torch.nn.Sequential(Net(Square), torch.nn.BatchNorm1d(4))
    check_gradients(net, (X,), {})
    assert int(net[1].num_batches_tracked) == 0
