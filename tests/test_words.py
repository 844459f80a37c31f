"""No new riddles: allowances of words, part by part, which only fall."""

from pathlib import Path

from tests import words

ROOT = Path(__file__).parents[1]


def product():
    return {str(p.relative_to(ROOT)): p.read_text() for p in (ROOT / "anyjax").rglob("*.py")}


def test_every_part_keeps_to_its_allowance():
    allowed = words.allowances((ROOT / "tests/expect/words.txt").read_text())
    assert words.findings(words.measures(product()), allowed) == []


BAD = '''
def of(asked: Any, x: int):
    """What is asked."""
    found = kept = asked
    total = x
'''


def test_measures():
    assert words.measures({"anyjax/torch/bad.py": BAD}) == {"torch": (66.7, 1, 50.0)}
    assert words.measures({"anyjax/model.py": '"""A Model."""'}) == {"top": (0.0, 0, 0.0)}


def test_too_many_and_too_loose_an_allowance():
    measured = {"torch": (66.7, 1, 50.0)}
    assert len(words.findings(measured, {})) == 3
    assert words.findings(measured, {"torch": (66.7, 1, 50.0)}) == []
    assert words.findings(measured, {"torch": (70.0, 1, 50.0)}) == [
        "torch: pointing names, %: 66.7: lower its 70.0 in words.txt"
    ]
