"""Written Flax files beside torch, module by module by their names."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest
import torch
import transformers
from flax import nnx

import anyjax
from anyjax.errors import Unsupported

IDS = np.random.default_rng(0).integers(3, 90, (2, 12))
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


def llama():
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
        num_hidden_layers=2, vocab_size=99, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaModel(config).eval()


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.inner = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.GELU())
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x):
        x = self.inner(torch.relu(self.norm(self.conv(x))))
        return self.head(x.mean((2, 3)))


def convolutions():
    torch.manual_seed(0)
    return Convolutions().eval()


def written(module, x, folder, style, change=lambda text: text):
    """Writes a file, changes it, and returns its module with the weights of torch's."""
    text = anyjax.flax.source(module, x, style=style, check=False)
    file = folder / "model.py"
    file.write_text(change(text))
    spec = importlib.util.spec_from_file_location("model", file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    weights = {k: v.numpy() for k, v in module.state_dict().items()}
    cls = getattr(loaded, type(module).__name__)
    if style == "linen":
        return cls().bind(loaded.load_params(weights))
    model = loaded.load_params(cls(rngs=nnx.Rngs(0)), weights)
    model.eval()
    return model


CASES = {"llama": (llama, IDS), "convolutions": (convolutions, IMAGES)}


@pytest.mark.parametrize("style", ["nnx", "linen"])
@pytest.mark.parametrize("case", CASES)
def test_a_written_file_is_equal(case, style, tmp_path):
    build, x = CASES[case]
    module = build()
    file = written(module, torch.from_numpy(x), tmp_path, style)
    report = anyjax.verify(file, x, reference=module)
    assert report.ok, str(report)
    paths = {x.path for x in report.modules}
    assert paths >= ({"conv", "norm", "head"} if case == "convolutions" else {"layers.1.mlp"})


def test_a_planted_fault_of_a_file(tmp_path):
    module = llama()

    def other_gate(text):
        assert text.count("nnx.silu(") == 1
        return text.replace("nnx.silu(", "nnx.gelu(")

    file = written(module, torch.from_numpy(IDS), tmp_path, "nnx", other_gate)
    report = anyjax.verify(file, IDS, reference=module)
    assert {x.path for x in report.faults} == {"layers.0.mlp", "layers.1.mlp"}, str(report)
    assert "model.py" in report.verdict


def test_code_between_the_modules_of_a_file_answers_for_itself(tmp_path):
    """Layers get integers, too, which a file has not: floats are still those of torch."""
    module = llama()

    def forgotten(text):
        (line,) = re.findall(r"\n.*= residual \+ .*self\.mlp\(.*|\n.*self\.mlp\(.*", text)
        return text.replace(line, line.replace("self.mlp(", "1.1 * self.mlp("))

    file = written(module, torch.from_numpy(IDS), tmp_path, "nnx", forgotten)
    report = anyjax.verify(file, IDS, reference=module)
    assert {x.path for x in report.faults} == {"layers.0", "layers.1"}, str(report)


def test_what_is_refused(tmp_path):
    module = convolutions()
    file = written(module, torch.from_numpy(IMAGES), tmp_path, "nnx")
    with pytest.raises(Unsupported, match="as the reference"):
        anyjax.verify(file, IMAGES)
    with pytest.raises(Unsupported, match="gradients of a Flax module"):
        anyjax.verify(file, IMAGES, reference=module, gradients=True)
    with pytest.raises(Unsupported, match="neither a Model nor a Flax module"):
        anyjax.verify(module, IMAGES, reference=module)
