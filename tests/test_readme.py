"""The README's Python example runs as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_python_example(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(Path(__file__).parents[1])
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["text_ids"].shape[0] == 1
    assert set(names["grads"]) == set(names["model"].params)
