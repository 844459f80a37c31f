"""The examples with Flax run as they stand, and what they train gets better."""

import re
import runpy

import pytest

NAMES = ["flax_nnx_backbone", "flax_linen_trainstate"]


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_goes_down(name, capsys, monkeypatch):
    pytest.importorskip("optax")
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend("examples")
    runpy.run_path(f"examples/{name}.py", run_name="__main__")
    said = capsys.readouterr().out
    first, last, accuracy = map(float, re.findall(r"[\d.]+", said))
    assert last < first / 4
    assert accuracy > 95


@pytest.mark.conformance
def test_edited_source_still_loads_the_checkpoint(capsys):
    """What is seen within 24 tokens is the same, beyond them it is not."""
    pytest.importorskip("transformers")
    runpy.run_path("examples/flax_edited_llama.py", run_name="__main__")
    said = re.findall(r"[\d.]+e[+-]\d+|\d\.\d{3}", capsys.readouterr().out)
    short, whole, window = map(float, said)
    assert short < 1e-5 and 1e-3 < abs(window - whole) < 1
