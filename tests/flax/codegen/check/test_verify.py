"""What is written wrong is an error that names where; what cannot be compared is no error."""

import pytest
import torch
from torch import nn

import anyjax
import anyjax.flax.codegen._source  # which fills the table
from anyjax.errors import WrongSource
from anyjax.flax.codegen.python import templates
from tests.flax.codegen.models import drawn

pytestmark = pytest.mark.sample(every=15)

WRONG = "jnp.tanh(self) * 1.01"


class Part(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x).sin()


class Odd(Part):
    def forward(self, x):
        return self.linear(x).tanh()


class Net(nn.Module):
    """A part that is written right, in a list one that may be wrong, and lines of its own."""

    def __init__(self):
        super().__init__()
        self.part, self.odd = Part(), nn.ModuleList([Part(), Odd()])
        self.after = Part()

    def forward(self, x):
        x = self.part(x)
        for part in self.odd:
            x = part(x)
        return self.after(x)


class Outside(nn.Module):
    """The same, wrong in its own lines between two parts."""

    def __init__(self):
        super().__init__()
        self.part, self.after = Part(), Part()

    def forward(self, x):
        return self.after(self.part(x).tanh())


@pytest.fixture
def wrong(monkeypatch):
    monkeypatch.setitem(templates.table, "aten.tanh", WRONG)


@pytest.mark.parametrize("style", ["nnx", "linen"])
@pytest.mark.parametrize(("cls", "where"), [(Net, r"odd\.1 \(Odd\)"), (Outside, "Outside")])
def test_a_difference_names_its_submodule(wrong, cls, where, style):
    message = rf"(?s)values differ.*where: {where},? .*test_verify\.py:\d+.*why:.*off by"
    with pytest.raises(WrongSource, match=message):
        anyjax.flax.source(cls(), drawn(2, 4), style=style)
    assert "1.01" in anyjax.flax.source(cls(), drawn(2, 4), style=style, check=False)


def test_a_gradient_that_differs(monkeypatch):
    monkeypatch.setitem(templates.table, "aten.tanh", "jnp.tanh(jax.lax.stop_gradient(self))")
    with pytest.raises(WrongSource, match=r"the gradient of .*linear"):
        anyjax.flax.source(Odd(), drawn(2, 4))


def test_a_gradient_behind_statistics_that_differs(monkeypatch):
    monkeypatch.setitem(templates.table, "aten.tanh", "jnp.tanh(jax.lax.stop_gradient(self))")
    with pytest.raises(WrongSource, match="the gradient of"):
        anyjax.flax.source(nn.Sequential(Odd(), nn.BatchNorm1d(4)), drawn(3, 4))


class Alone(nn.Module):
    def forward(self, x):
        return x.tanh()


def test_a_gradient_of_an_input_that_differs(monkeypatch):
    monkeypatch.setitem(templates.table, "aten.tanh", "jnp.tanh(jax.lax.stop_gradient(self))")
    with pytest.raises(WrongSource, match="the gradient of input x"):
        anyjax.flax.source(Alone(), drawn(2, 4))


@pytest.mark.parametrize(
    "text", ["jnp.tanh(self) * (self.shape[0] == 2)", "jnp.tanh(self) * (self.shape[1] == 5)"]
)
def test_another_shape_that_differs(monkeypatch, text):
    monkeypatch.setitem(templates.table, "aten.tanh", text)
    with pytest.raises(WrongSource, match="values of another shape"):
        anyjax.flax.source(Alone(), drawn(2, 5))


class Trains(nn.Module):
    def forward(self, x):
        return x * 2 if self.training else x + 1


class Normed(nn.Module):
    """Statistics of the batch, which are right, and dropout where it is asked for."""

    def __init__(self, rate):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(rate)

    def forward(self, x):
        return self.drop(self.norm(x))


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_training_mode(style):
    with pytest.raises(WrongSource, match="no training mode"):
        anyjax.flax.source(Trains(), drawn(2, 4), style=style)
    for rate in (0.0, 0.5):
        module = Normed(rate).train()
        anyjax.flax.source(module, drawn(3, 4), style=style)
        assert module.training and not module.norm.num_batches_tracked


class More(nn.Module):
    def __init__(self, outputs, rate=0.0):
        super().__init__()
        self.outputs, self.drop = outputs, nn.Dropout(rate)

    def forward(self, x):
        return self.outputs(self.drop(x) + 1) if self.training else x + 1


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize(
    "outputs", [lambda x: (x, x.sin()), lambda x: x.sum(), lambda x: {"out": x}, lambda x: [x]]
)
def test_outputs_that_only_training_mode_has_are_refused(outputs, rate):
    with pytest.raises(WrongSource, match=r"(?s)only training mode gives.*check=False"):
        anyjax.flax.source(More(outputs, rate), drawn(2, 4))


class Endless(nn.Module):
    """Infinities, the lowest number, and whole numbers among the outputs."""

    def forward(self, x):
        low = torch.finfo(x.dtype).min
        mask = x > 0
        return x.masked_fill(mask, -torch.inf), x.masked_fill(mask, low), x.argmax(-1), mask


def test_numbers_without_a_size():
    anyjax.flax.source(Endless(), drawn(3, 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype):
    anyjax.flax.source(Net().to(dtype), drawn(2, 4).to(dtype))


def test_inputs_that_are_written_to():
    class Writes(nn.Module):
        def forward(self, x):
            x = x.clone() if x.is_leaf else x
            return x.mul_(2)

    anyjax.flax.source(Writes(), drawn(2, 4))


class Steep(nn.Module):
    """What rounding moves more than the tolerance, with numbers that are no 64 bits."""

    def __init__(self, off=0.0):
        super().__init__()
        self.linear, self.off = nn.Linear(4, 4), off

    def forward(self, x):
        x = self.linear(x.float()) if self.linear.weight.dtype == torch.float32 else x.bfloat16()
        if x.dtype == torch.bfloat16:
            raise TypeError("32 bits only")
        return (1e5 * x).sin().tanh()


def test_rounding_of_a_module_that_insists_on_its_precision(monkeypatch):
    anyjax.flax.source(Steep(), drawn(64, 4))
    monkeypatch.setitem(templates.table, "aten.tanh", "jnp.tanh(self) * 0.5")
    with pytest.raises(WrongSource, match="values differ"):
        anyjax.flax.source(Steep(), drawn(64, 4))


class Square(torch.autograd.Function):
    """Its backward is the derivative, in other words."""

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


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        return self.function.apply(self.linear(x))


def test_a_backward_that_is_no_derivative():
    assert "class Applied" in anyjax.flax.source(Applied(Square), drawn(3, 4))
    with pytest.raises(WrongSource, match=r"gradient of linear.* differs"):
        anyjax.flax.source(Applied(Through), drawn(3, 4))
