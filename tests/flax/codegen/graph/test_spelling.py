"""Names of modules and arrays that Python or Flax cannot have as attributes."""

import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.flax.codegen.graph.spelling import spelled, spellings
from anyjax.flax.codegen.style.linen import Linen
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import loaded

ODD = ("b-c", "b_c", "b c", "class", "None", "-1", "0", "10", "01", "²", "ﬁ", "日本", "__a", "a->b")


class Keyed(nn.Module):
    """Each layer and each parameter of a dict, in order."""

    def __init__(self, keys):
        super().__init__()
        self.layers = nn.ModuleDict({x: nn.Linear(4, 4) for x in keys})
        self.scales = nn.ParameterDict({x: nn.Parameter(drawn(4)) for x in keys})

    def forward(self, x):
        for key in self.layers:
            x = self.scales[key] * self.layers[key](x).tanh()
        return x


class Member(nn.Module):
    """Something of this name."""

    def __init__(self, name, member):
        super().__init__()
        setattr(self, name, member)
        self.name_of_it = name

    def forward(self, x):
        member = getattr(self, self.name_of_it)
        return member(x) if isinstance(member, nn.Module) else x * member


class Levels(nn.Module):
    """Linen's loader has one name for several of these."""

    def __init__(self):
        super().__init__()
        self.a = nn.ModuleDict({"b_c": nn.Linear(4, 4)})
        self.a_b = nn.ModuleDict({"c": nn.Linear(4, 4)})
        self.layers, self.layers_0 = nn.ModuleList([nn.Linear(4, 4)]), nn.Linear(4, 4)

    def forward(self, x):
        return self.layers_0(self.layers[0](self.a_b["c"](self.a["b_c"](x).tanh()).tanh()).tanh())


def outputs(module, style):
    """The file's output with the weights of the module."""
    x = drawn(3, 4)
    file = loaded(anyjax.flax.source(module, x, style=style))
    weights = {k: v.numpy() for k, v in module.state_dict().items()}
    cls = getattr(file, type(module).__name__)
    if style == "linen":
        return module(x), cls().apply(file.load_params(weights), x.numpy())
    from flax import nnx

    return module(x), file.load_params(cls(rngs=nnx.Rngs(0)), weights)(x.numpy())


@pytest.mark.parametrize("style", ["nnx", "linen"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Keyed(ODD),
        lambda: Keyed("123"),
        lambda: Member("params", nn.Parameter(drawn(4))),
        lambda: nn.Sequential(Member("params", nn.Linear(4, 4))),
        lambda: Member("scope", nn.Linear(4, 4)),
        lambda: Member("setup", nn.Parameter(drawn(4))),
        lambda: Member("deterministic", nn.Parameter(drawn(4))),
        lambda: Member("kernel", nn.Parameter(drawn(3, 4))),
        lambda: Member("layers_", nn.Linear(4, 4)),
        Levels,
    ],
)
def test_a_module_whose_names_are_not_flaxs(make, style):
    torch.manual_seed(0)
    module = make().eval()
    names = [*module.state_dict()]
    want, got = outputs(module, style)
    np.testing.assert_allclose(got, want.detach(), rtol=1e-4, atol=1e-5)
    assert [*module.state_dict()] == names


def test_names_that_are_fine_stay():
    module = nn.Sequential(nn.ModuleDict({"a": nn.Linear(2, 2), "ä": nn.Linear(2, 2)}))
    assert spellings(module, {"params"}) == {}


def test_names_of_inner_modules():
    module = nn.ModuleDict({"a-b": nn.ModuleDict({"class": nn.Linear(2, 2)})})
    names = spellings(module, ())
    assert names == {"a-b": "a_b", "a_b.class": "a_b._class"}
    assert spelled("a-b.class.weight", names) == "a_b._class.weight"


def test_names_that_linens_loader_takes_for_one():
    new = spellings(Levels(), Linen.reserved, Linen().loader_name)
    names = [spelled(x, new) for x in Levels().state_dict()]
    assert len({*map(Linen().loader_name, names)}) == len(names)
