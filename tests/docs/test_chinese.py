"""The Chinese pages have the code, the headings and the facts of the English ones."""

import re
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in (DOCS / "zh").glob("*.md") if page.name != "index.md")
FENCE = re.compile(r"^(`{3,})([^\n]*\n.*?)^\1$", re.DOTALL | re.MULTILINE)
CHINESE = re.compile(r"[一-鿿]")


def english(name: str) -> str:
    page = next(place for place in (DOCS, DOCS / "tutorials") if (place / name).exists()) / name
    return page.read_text(encoding="utf-8")


def code(page: str) -> list[str]:
    """The contents of the fences of backticks; those of colons hold text."""
    return [content for _, content in FENCE.findall(page)]


def levels(page: str) -> list[int]:
    """The levels of the headings, in order."""
    return [len(marks) for marks in re.findall(r"^(#+) ", FENCE.sub("", page), re.MULTILINE)]


def cells(page: str) -> int:
    """The number of cells in the first columns of tables, and of list items."""
    return len(re.findall(r"^(?:\||- |\d+\. )", FENCE.sub("", page), re.MULTILINE))


def test_there_are_pages():
    required = {"all-of-anyjax.md", "start.md", "hugging-face.md", "training.md"}
    assert required | {"torch-to-flax.md", "tensorflow.md"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_step(name):
    chinese, original = (DOCS / "zh" / name).read_text(encoding="utf-8"), english(name)
    assert code(chinese) == code(original)
    assert levels(chinese) == levels(original)
    assert cells(chinese) == cells(original)
    text = FENCE.sub("", chinese)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    assert not [x for x in headings if not CHINESE.search(x) and f"# {x}\n" not in original]
    assert len(CHINESE.findall(text)) > len(FENCE.sub("", original).split()) / 2


def test_a_change_of_one_language_is_seen():
    page = english("start.md")
    assert code(page) != code(page.replace("pip install", "pip  install", 1))
    assert levels(page) != levels(page + "\n## Further\n")


def facts(page: str) -> list[Counter[str]]:
    """What both languages write alike: names of code, pages that are linked, numbers."""
    text = FENCE.sub("", page)
    names, text = re.findall(r"`([^`\n]+)`", text), re.sub(r"`[^`\n]+`", "", text)
    pages, text = re.findall(r"\]\(([^)]+)\)", text), re.sub(r"\]\([^)]+\)", "", text)
    files = (page.partition("#")[0].rpartition("/")[2] for page in pages)
    return [Counter(names), Counter(files), Counter(re.findall(r"\d+(?:[.,]\d+)*", text))]


@pytest.mark.parametrize("name", [*PAGES, "README"])
def test_a_page_has_the_same_facts(name):
    """An old fact in one language names what the other page does not have."""
    if name == "README":
        readmes = (DOCS.parent / f"README{language}.md" for language in (".zh", ""))
        chinese, original = (page.read_text(encoding="utf-8") for page in readmes)
        original = original.replace("README.zh.md", "README.md")  # the other language
    else:
        chinese, original = (DOCS / "zh" / name).read_text(encoding="utf-8"), english(name)
    (names, *further), (own, *others) = facts(chinese), facts(original)
    assert not own - names
    assert not [x for x in names - own if x not in original]
    assert [x - y for x, y in zip(others, further)] == [Counter(), Counter()]
