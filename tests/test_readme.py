"""The README's Python examples run as they stand, one after the other."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_python_examples(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(Path(__file__).parents[1])
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(code, names)
    assert names["text_ids"].shape[0] == 1
    assert set(names["grads"]) == set(names["model"].params)
    assert [m["role"] for m in names["chat"]] == ["user", "assistant"] * 2
    first, second = (m["content"] for m in names["chat"][1::2])
    assert first and second and first != second
    assert names["prompt"]["input_ids"].shape[1] > 4
