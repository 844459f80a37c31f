"""``anyjax export`` in a process of its own: an artifact that loads."""

import numpy as np
import pytest

import anyjax
from tests.processes.cli.test_cli import DEMO, ROOT
from tests.processes.cli.test_cli import anyjax as shell

pytestmark = pytest.mark.processes


@pytest.mark.conformance
def test_a_language_model_with_its_loop(tmp_path):
    out = tmp_path / "llama"
    options = "--batch", "2", "--length", "12", "--generate", "6"
    code, said, err = shell("export", DEMO, "-o", str(out), *options)
    assert code == 0, err
    assert "generated tokens: the same" in said and "input_ids int32[2, 12]" in said
    assert said.splitlines()[-1].startswith(f"load it: model = anyjax.load('{out}'); ids = ")
    assert (out / "tokenizer" / "tokenizer.json").exists()
    ids = np.arange(3, 15).reshape(1, 12)
    model = anyjax.from_pretrained(ROOT / DEMO)
    want = anyjax.generate(model, ids, max_new_tokens=6, do_sample=False)
    np.testing.assert_array_equal(anyjax.generate(anyjax.load(out), ids), want)
