"""The examples that look inside of models: they find what is known to be there."""

import re
import runpy
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import anyjax

pytestmark = pytest.mark.sample(every=4)
LINES = {"activation_patching": 60, "grad_cam": 105}


def run(name, monkeypatch, *args):
    """Runs an example as a script."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
    runpy.run_path(f"examples/{name}.py", run_name="__main__")
    assert len(Path(f"examples/{name}.py").read_text().splitlines()) < LINES[name]


def test_activation_patching_finds_the_word_and_then_the_place_where_it_is_needed(
    monkeypatch, capsys, tmp_path
):
    pytest.importorskip("matplotlib")
    run("activation_patching", monkeypatch, "--out", tmp_path)
    assert (tmp_path / "patching.png").stat().st_size > 1000
    table = capsys.readouterr().out.splitlines()
    shares = np.array([[float(x) for x in re.findall(r"-?\d\.\d\d", row)] for row in table]).T
    words = [row[:12].strip() for row in table]
    assert shares.shape == (4, 13)
    word, last = words.index("' value'"), len(words) - 1
    assert (shares[:3, word] > 0.9).all() and shares[3, last] > 0.9
    rest = shares.copy()
    rest[:, [word, last]] = 0
    assert abs(rest).max() < 0.1
    assert not shares[:, :word].any()  # what comes before the word does not see it


def test_activation_patching_is_that_of_torchs_hooks():
    names = runpy.run_path("examples/activation_patching.py")
    model = anyjax.from_pretrained("examples/tiny-llama")
    ids = np.random.default_rng(0).integers(3, 2000, (2, 1, 5))
    shares = names["restored"](model, *ids, [5, 7])
    module, (clean, corrupted) = model.to_torch(), torch.from_numpy(ids)
    layers, values = module.model.layers, []
    margin = lambda x: torch.subtract(*module(x, use_cache=False).logits[0, -1, [5, 7]]).item()
    note = lambda module, args, out: values.append(out.clone())
    with torch.no_grad(), ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_hook(note).remove)
        best = margin(clean)
    for (layer, position), share in np.ndenumerate(shares):
        here = torch.arange(5)[:, None] == position
        patch = lambda module, args, out, x=values[layer], here=here: torch.where(here, x, out)
        with torch.no_grad():
            worst = margin(corrupted)
            handle = layers[layer].register_forward_hook(patch)
            expected = (margin(corrupted) - worst) / (best - worst)
            handle.remove()
        np.testing.assert_allclose(share, expected, atol=1e-4)
    np.testing.assert_allclose(shares[-1], [0, 0, 0, 0, 1], atol=1e-5)


@pytest.mark.conformance
def test_grad_cam_finds_the_disk_and_the_square(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    run("grad_cam", monkeypatch, "--out", tmp_path)
    assert (tmp_path / "grad_cam.png").stat().st_size > 1000
    places = re.findall(r"(\w+): hottest at row (\d), column (\d)", capsys.readouterr().out)
    hottest = {name: (int(row), int(column)) for name, row, column in places}
    assert {*hottest} == {"disk", "square"}
    assert max(hottest["disk"]) < 3 <= min(hottest["square"])  # of six


def test_grad_cam_is_that_of_torchs_hooks():
    names = runpy.run_path("examples/grad_cam.py")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(**names["CONFIG"], num_labels=3)
    module = transformers.ResNetForImageClassification(config).eval()
    pixels = np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)
    activations, gradients = [], []
    stage = module.resnet.encoder.stages[-1]
    handles = [
        stage.register_forward_hook(lambda module, args, out: activations.append(out.detach())),
        stage.register_full_backward_hook(lambda module, into, of: gradients.append(of[0])),
    ]
    x = torch.from_numpy(pixels).requires_grad_()
    module(x).logits[:, 1].sum().backward()
    for handle in handles:
        handle.remove()
    weights = gradients[0].mean((2, 3), keepdim=True)
    expected = torch.relu((weights * activations[0]).sum(1)), x.grad.abs().amax(1)
    model = anyjax.from_torch(module)
    actual = names["maps"](model, pixels, 1, r"encoder\.stages\.\d+$")
    for ours, theirs in zip(actual, expected, strict=True):
        assert np.ptp(ours) > 0
        scale = theirs.abs().max().item()
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5 * scale)
