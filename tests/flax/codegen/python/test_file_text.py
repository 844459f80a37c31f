"""The text of a file is formatted wherever it is written."""

import pytest
import torch
from flax import nnx
from torch import nn

import anyjax
from anyjax.flax.codegen.python.file_text import formatted
from tests.flax.codegen.running import loaded


def test_a_module_in_the_working_folder_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "types.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    assert formatted("x=1") == "x = 1\n"


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_weights_without_a_place_are_named(style):
    module, x = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.ones(3, 2)
    file = loaded(anyjax.flax.source(module, x, style=style))
    weights = {k: v.numpy() for k, v in module.state_dict().items()}
    load = file.load_params
    if style == "nnx":
        load = lambda weights: file.load_params(file.Sequential(rngs=nnx.Rngs(0)), weights)
    load(weights)
    with pytest.raises(ValueError, match=r"2\.weight has no place\n3\.bias has no place"):
        load(weights | {"2.weight": weights["0.weight"], "3.bias": weights["0.bias"]})
