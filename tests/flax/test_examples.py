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
