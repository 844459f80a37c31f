"""Names of inputs that are also names of the file, of Python's, or of Flax's."""

import pytest
import torch
from torch import nn

import anyjax
from anyjax.flax.codegen.python.templates import variable

pytestmark = pytest.mark.sample(every=15)

NAMES = ["input", "len", "self_", "jnp", "nn", "rngs", "scope", "deterministic", "weights", "x"]
CODE = """
def forward(self, {name}):
    if {name}.shape[1] > 5:
        return {name}
    return self.drop(self.linear({name}))
"""


def module(name, tmp_path):
    """Its input has this name, and what it does depends on that one's size."""
    file = tmp_path / f"named_{name}.py"
    file.write_text(CODE.format(name=name))
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)

    Named.forward = space["forward"]
    return Named()


@pytest.mark.parametrize("style", ["nnx", "linen"])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_inputs(name, style, tmp_path):
    text = anyjax.flax.source(module(name, tmp_path), torch.ones(3, 5, 4), style=style)
    written = variable(name)
    assert written.rstrip("_") == name.rstrip("_")
    assert f"def __call__(self, {written}" in text
    assert f"if not {written}.shape[1] <= 5:\n            raise ValueError" in text


class Counts(nn.Module):
    def forward(self, input):
        count = torch.ones(input.shape[0]).sum().long()
        return torch.stack([input[i] * i for i in range(int(count))])


def test_fixed_sizes_of_an_input_called_input():
    text = anyjax.flax.source(Counts(), torch.ones(3, 5))
    assert "if input_.shape != (3, 5):" in text
