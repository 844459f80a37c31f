"""Each error and warning has a page; its programs raise it, and its ways out run."""

import ast
import re

import jax
import pytest

from anyjax import errors
from tests.docs import error_pages
from tests.docs.error_pages import CLASSES, FOLDER, blocks, plain, prepare, run, run_in_processes

ANYJAX = error_pages.ROOT / "anyjax"
INDEX = (FOLDER / "index.md").read_text()
PAGES = {name: (FOLDER / f"{name}.md").read_text() for name in CLASSES}
IN_PROCESSES = [name for name, page in PAGES.items() if "```console\n" in page]
SECTIONS = ["What it looks like", "Usual causes", "What to do", "See also"]


def test_there_are_no_other_pages():
    assert {file.stem for file in FOLDER.glob("*.md")} == {*CLASSES, "index"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_page_has_its_sections_and_the_index_names_it(name):
    page, kind = PAGES[name], CLASSES[name]
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    assert errors.explain_command(kind) == f"anyjax explain {name}"
    (row,) = re.findall(rf"^\| \[{name}\]\({name}\.md\) \| .*", INDEX, re.MULTILINE)
    bases = [base for base in kind.__mro__[1:] if base.__module__ == "builtins"]
    assert issubclass(kind, UserWarning) or f"`{bases[0].__name__}`" in row
    assert f"\n{name}\n" in INDEX[INDEX.index("{toctree}") :]


def strings() -> str:
    """All texts of the product, with the holes of f-strings between their parts."""
    nodes = (x for file in ANYJAX.rglob("*.py") for x in ast.walk(ast.parse(file.read_text())))
    texts = (x.value for x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str))
    return "\n".join(" ".join(text.split()) for text in texts)


def phrases(page: str) -> list[str]:
    """The pieces of messages that a page's causes quote, in bold."""
    causes = page[page.index("## Usual causes") : page.index("## What to do")]
    quotes = re.findall(r"\*\*(.+?)\*\*", causes, re.DOTALL)
    pieces = (piece for quote in quotes for piece in re.split(r"\.\.\.|[=:,]", quote))
    return [piece for piece in (" ".join(x.split()) for x in pieces) if len(piece) > 5]


def test_causes_quote_messages():
    text = strings()
    quoted = {name: phrases(page) for name, page in PAGES.items()}
    assert sum(map(len, quoted.values())) > 200
    assert [(k, x) for k, pieces in quoted.items() for x in pieces if x not in text] == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path.resolve()
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("name", CLASSES)
def test_programs(name, folder):
    page = PAGES[name]
    for package in re.findall(r"^(?:import|from) (\w+)", page, re.MULTILINE):
        pytest.importorskip(package)
    prepare(folder, page)
    raising, working = 0, 0
    for block, raised, printed in run(page, folder):
        assert printed == (block.message or ""), block.text
        if raised is None:
            working += block.section == "What to do"
        else:
            assert (
                type(raised).__name__ == name and errors.explain_command(CLASSES[name]) in printed
            )
            raising += block.section == "What it looks like"
    assert working
    assert raising or name in IN_PROCESSES


@pytest.mark.processes
@pytest.mark.parametrize("name", IN_PROCESSES)
def test_jobs(name, folder):
    if "tensorflow" in PAGES[name]:
        pytest.importorskip("tensorflow")
    prepare(folder, PAGES[name])
    for block in blocks(PAGES[name]):
        if block.language == "console":
            printed = run_in_processes(block.text, folder).splitlines()
            lines = (block.message or "").splitlines()
            # Gloo's words differ, and the process that is left may have ended by itself.
            begins = lambda texts: {x.partition("; stopping")[0] for x in texts if "Gloo" not in x}
            assert begins(lines) <= begins(printed), printed
    assert name in lines[0] and errors.explain_command(CLASSES[name]) in "".join(lines)


PAGE = """\
## What it looks like

```python
import anyjax
raise anyjax.errors.NoData("none")
```

```text
anyjax.errors.NoData: none
  see:   anyjax explain NoData
```

```python
1 + 1
```
"""


def outcomes(page, folder):
    return [(type(raised), printed, block.message) for block, raised, printed in run(page, folder)]


def test_a_program_that_raises_nothing_or_another_message_is_seen(folder):
    (kind, printed, message), after = outcomes(PAGE, folder)
    assert kind is errors.NoData and printed == message and after == (type(None), "", None)
    (_, printed, message), _ = outcomes(PAGE.replace('"none"', '"one"'), folder)
    assert printed != message
    (kind, _, _), _ = outcomes(PAGE.replace("raise ", ""), folder)
    assert kind is type(None)


def test_a_machines_folders_are_left_out(tmp_path):
    assert plain(f"{tmp_path}/a.py in {tmp_path} at 0x7f", tmp_path) == "a.py in . at 0x...\n"
    assert plain(str(error_pages.ROOT / "docs"), tmp_path) == "docs\n"
