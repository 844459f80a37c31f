"""The examples with torch run as they stand."""

import re
import runpy


def test_training_step(capsys):
    runpy.run_path("examples/torch_training_step.py", run_name="__main__")
    first, last, accuracy = map(float, re.findall(r"[\d.]+", capsys.readouterr().out))
    assert last < first / 10
    assert accuracy > 95
