"""The pages of docs/coming-from: the new lines run, and give what the old lines give.

``tests/docs/pages.py`` says how pairs are marked. tf2jax and torch run in this process. The other
projects run in one of their own, in `make conformance`, where a variable says where they are: an
interpreter that has them, a folder, an archive of their source or a wheel:

TORCHAX=archive.tar.gz TORCH2JAX=folder TRANSFORMERS_FLAX=python TOJAX=python make conformance

tojax needs Python 3.12, so an older one gives the interpreter of another environment.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import NEW, ROOT, assigned, blocks, numbers, values

pytestmark = pytest.mark.processes
pytest.importorskip("transformers")

FOLDER = ROOT / "docs" / "coming-from"
PAGES = sorted(x.stem for x in FOLDER.glob("*.md") if x.stem != "index")
# Pairs of which one side cannot run with the tested versions stand on pages without tabs.
PAIRED = [x for x in PAGES if "{tab-set}" in (FOLDER / f"{x}.md").read_text(encoding="utf-8")]
HERE = {"tf2jax": "tf2jax", "torch": "torch"}  # page: the package that this environment has
PEERS = {  # page: (the package, the variable that says where it is)
    "torchax": ("torchax", "TORCHAX"),
    "torch2jax": ("torch2jax", "TORCH2JAX"),
    "tojax": ("tojax", "TOJAX"),
    "transformers-flax": ("transformers.modeling_flax_utils", "TRANSFORMERS_FLAX"),
}
RTOL = 1e-4  # of the largest value: training steps and whole models, as on the pages themselves


def page_of(name: str) -> Path:
    return FOLDER / f"{name}.md"


def old_title(name: str) -> str:
    """The title of the tabs that are not ours."""
    page = blocks(page_of(name).read_text(encoding="utf-8"))
    (title,) = {x.title for x in page} - {NEW, ""}
    return title


@cache
def new_values(name: str) -> dict[tuple[int, str], Any]:
    old_folder = Path.cwd()
    os.chdir(ROOT)
    try:
        return values(page_of(name), NEW, new=True)
    finally:
        os.chdir(old_folder)


def assert_same(new: Any, old: Any, where: str) -> None:
    """Fails unless two nests of arrays are equal up to rounding."""
    if isinstance(new, dict):
        assert new.keys() == old.keys(), where
        for key in new:
            assert_same(new[key], old[key], f"{where}.{key}")
    elif isinstance(new, list):
        assert len(new) == len(old), where
        for i, (x, y) in enumerate(zip(new, old)):
            assert_same(x, y, f"{where}.{i}")
    else:
        atol = RTOL * float(np.abs(old.astype(np.float64)).max(initial=0.0))
        np.testing.assert_allclose(new, old, rtol=0, atol=atol, err_msg=where)


def assert_pairs_agree(name: str, old: dict[tuple[int, str], Any]) -> None:
    """Fails where a pair has no value in common, or one that differs."""
    new = new_values(name)
    pairs = {x.pair for x in blocks(page_of(name).read_text(encoding="utf-8")) if x.title}
    shared = new.keys() & old.keys()
    assert {pair for pair, _ in shared} == pairs, "pairs without a common name"
    for pair, variable in sorted(shared):
        assert_same(new[pair, variable], old[pair, variable], f"pair {pair}: {variable}")


@pytest.mark.parametrize("name", PAGES)
def test_the_new_lines_run(name):
    new_values(name)


@pytest.mark.parametrize("name", HERE)
def test_both_sides_agree(name, monkeypatch):
    pytest.importorskip(HERE[name])
    monkeypatch.chdir(ROOT)
    assert_pairs_agree(name, values(page_of(name), old_title(name)))


def test_torchax_s_lines_run_on_anyjax(monkeypatch):
    monkeypatch.chdir(ROOT)
    torchax = pytest.importorskip("anyjax.torchax")
    torchax.install()
    try:
        assert_pairs_agree("torchax", values(page_of("torchax"), "torchax"))
    finally:
        for name in [x for x in sys.modules if x.partition(".")[0] == "torchax"]:
            del sys.modules[name]


def environment(package: str, place: str | None, folder: Path) -> tuple[str, dict[str, str]]:
    """The interpreter that has a package, and its variables."""
    paths = [str(ROOT)]
    python = sys.executable
    if place is None:
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            pytest.skip(f"{package} is not installed, and no variable says where it is")
    elif (path := (ROOT / place).resolve()).name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        paths += [str(x) for x in folder.iterdir()]
    elif path.is_dir() or path.suffix == ".whl":
        paths.append(str(path))
    else:
        python = str(ROOT / place)  # not resolved: an environment's interpreter is a link
    return python, os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.conformance
@pytest.mark.parametrize("name", PEERS)
def test_both_sides_agree_elsewhere(name, tmp_path):
    package, variable = PEERS[name]
    place = os.environ.get(variable) or None
    python, variables = environment(package, place, tmp_path / "source")
    found = subprocess.run(
        [python, "-c", f"import {package}"], env=variables, capture_output=True, text=True
    )
    if place is None and found.returncode:
        pytest.skip(f"{package} is not in this environment; {variable}= says where it is")
    file = tmp_path / "values"
    command = [
        python,
        "-W",
        "ignore",
        "-m",
        "tests.docs.pages",
        page_of(name),
        old_title(name),
        file,
    ]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_pairs_agree(name, pickle.loads(file.read_bytes()))


def test_every_page_is_compared_somewhere():
    assert {*HERE} | {*PEERS} == {*PAIRED}


PAGE = """\
```python
x = 1.0
```

::::{tab-set}
:::{tab-item} theirs
```python
y, f = x + 1, abs
```
:::
:::{tab-item} anyjax
```python
y = x + 2
```
:::
::::

```python
z = y
```
"""


def test_blocks_of_a_page():
    found = [(x.line, x.pair, x.title) for x in blocks(PAGE)]
    assert found == [(2, -1, ""), (8, 0, "theirs"), (13, 0, "anyjax"), (19, None, "")]
    assert assigned("a, b = 1, [c for c in ()]\ndef f():\n    d = 1") >= {"a", "b"}
    assert "d" not in assigned("def f():\n    d = 1")


def test_values_of_both_sides(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert values(page, "theirs") == {(0, "y"): np.asarray(2.0)}
    assert values(page, "anyjax", new=True) == {(0, "y"): np.asarray(3.0)}
    with pytest.raises(AssertionError, match=r"pair 0: y"):
        assert_same(np.asarray(3.0), np.asarray(2.0), "pair 0: y")


def test_no_number_is_no_value():
    assert numbers({"a": "text"}) is None and numbers([]) is None and numbers(abs) is None
