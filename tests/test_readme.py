"""The README's Python examples run as they stand, and both languages show the same code."""

import ast
import builtins
import re
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README, CHINESE = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")
)
CODE_BY = 12  # the line of README.md that is code at the latest


def blocks(page: str) -> list[str]:
    """The fenced blocks of a page, with their fences."""
    found = re.findall(r"^```.*?^```$", page, re.DOTALL | re.MULTILINE)
    assert page.count("```") == 2 * len(found), "a fence that is indented, or left open"
    return found


def examples(page: str) -> list[str]:
    """The code of the Python blocks."""
    start = "```python\n"
    return [b.removeprefix(start).removesuffix("```") for b in blocks(page) if b.startswith(start)]


def first_code(page: str) -> int:
    """The number of the first line of Python code, from 1."""
    return page[: page.index("```python\n")].count("\n") + 2


@pytest.fixture
def at_the_root(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(ROOT)


def test_python_examples(at_the_root):
    first, *others = examples(README)
    names: dict = {}
    exec(first, names)
    model, grads = names["model"], names["grads"]
    assert names["logits"].shape == names["expected"].shape == (1, 3, 2048)
    assert set(grads) == set(model.params)
    assert all(np.isfinite(grad).all() and np.any(grad) for grad in grads.values())
    lower = {name: value - 1e-4 * grads[name] for name, value in model.params.items()}
    assert names["loss"](lower) < names["loss"](model.params)

    for code in others:
        exec(code, names)
    assert set(names["slopes"]) == set(names["net"].params)
    assert names["state"]["1.num_batches_tracked"] == 1
    assert names["text_ids"].shape == (1, 3 + 8)
    assert names["text"].startswith("def main(") and names["text"] != "def main("
    assert [m["role"] for m in names["chat"]] == ["user", "assistant"] * 2
    answer, next_answer = (m["content"] for m in names["chat"][1::2])
    assert answer and next_answer and answer != next_answer
    assert set(names["weights"]) == set(names["dense"].params)
    np.testing.assert_allclose(names["cosine"], np.cos(names["x"][0]), rtol=1e-5)
    assert int(names["train_state"].step) == 20 and names["trained"] is names["module"]
    want = names["llama"].generate(names["prompt_ids"], max_new_tokens=8)
    np.testing.assert_array_equal(names["continued"], want)
    assert names["prompt"]["input_ids"].shape[1] > 4


def test_the_first_example_compares_for_real(at_the_root):
    wrong = examples(README)[0].replace("expected = ", "expected = 1.01 * ")
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        exec(wrong, {})


def test_both_languages_have_the_same_code():
    assert blocks(README) == blocks(CHINESE)
    assert len(blocks(README)) > len(examples(README)) > 0


def test_a_change_of_one_language_is_seen():
    for block in blocks(CHINESE):
        changed = block.removesuffix("```") + "\n```"
        assert blocks(README) != blocks(CHINESE.replace(block, changed))
        assert blocks(README) != blocks(CHINESE.replace(block, ""))


def test_code_comes_before_explanations():
    assert first_code(README) <= CODE_BY < first_code("\n" * CODE_BY + README)


def test_a_fence_that_is_left_open_is_seen():
    with pytest.raises(AssertionError, match="fence"):
        blocks(README.rstrip() + "\n```\n")


MAP = ROOT / "tojax" / "torch" / "README.md"


def test_the_map_names_files_and_rooms_that_are_there():
    page = MAP.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w/]+/)?\w+\.py)`", page)) - {"__init__.py"}
    here = [str(p.relative_to(ROOT)) for p in (ROOT / "tojax").rglob("*.py")]
    here += [str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("*.py")]
    assert len(named) > 15
    assert [name for name in named if not any(f"/{p}".endswith(f"/{name}") for p in here)] == []
    rooms = {p.parent.name for p in (MAP.parent).glob("*/__init__.py")}
    assert [room for room in rooms if room not in page] == []


def test_the_maps_example():
    pytest.importorskip("torch")
    import torch

    import tojax

    (code,) = examples(MAP.read_text(encoding="utf-8"))
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    names: dict = {"model": tojax.from_torch(net), "x": np.ones((1, 3), np.float32), "jax": jax}
    exec(code, names)
    assert {str(op): n for op, n in names["seen"].items()}["aten.relu.default"] == 1


def test_each_example_goes_on_from_the_first_alone(at_the_root):
    """As the page says; none needs a name of another one."""
    first, *others = examples(README)
    begun: dict = {}
    exec(first, begun)
    for code in others:
        names = set(builtins.__dict__) | begun.keys()
        assert _unknown(code, names) == [], code


def _unknown(code: str, names: set[str]) -> list[str]:
    """The names that a block uses and neither makes nor finds."""
    nodes = [*ast.walk(ast.parse(code))]
    used = {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
    made = {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    made |= {x.arg for x in nodes if isinstance(x, ast.arg)}
    made |= {x.name for x in nodes if isinstance(x, (ast.FunctionDef, ast.ClassDef))}
    made |= {(x.asname or x.name).partition(".")[0] for x in nodes if isinstance(x, ast.alias)}
    return sorted(used - made - names)


def test_a_name_of_another_example_is_seen():
    assert _unknown("def f(x): return x + y\nz = f(1)", {"x"}) == ["y"]


def figures(page: str) -> Counter[str]:
    """The numbers of the text, as often as they come."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"\d+(?:[.,]\d+)*", text)
    return Counter(x for x in found if len(x) > 1)  # a Chinese text has 1 and 3 in place of words


def test_both_languages_have_the_same_figures():
    assert figures(README) == figures(CHINESE)
    assert len(figures(README)) > 20


def test_a_figure_of_one_language_is_seen():
    english = "7 of 276 types, 5.23\n```\n99\n```\n"
    assert figures(english) == {"276": 1, "5.23": 1}
    assert figures(english) != figures(english.replace("276", "260"))
