"""Holds the floors, sizes and manners of the house over every file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import anyjax
from tests import house
from tests.expectations import complaints, expected_failures
from tests.floors import ROOMS

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TOPS = ("anyjax", "tests", "examples", "benchmarks", "docs", "proof")
NESTED = {
    "jaxlib": "jax",
    "ml-dtypes": "jax",
    "protobuf": "tensorflow",
    "h5py": "keras",
}  # come with these


@cache
def sources() -> dict[str, str]:
    """Every Python file of the repository by its path."""
    paths = [ROOT / "conftest.py", *(p for top in TOPS for p in sorted((ROOT / top).rglob("*.py")))]
    return {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in paths}


def product() -> dict[str, str]:
    return {path: text for path, text in sources().items() if path.startswith("anyjax/")}


def texts() -> dict[str, str]:
    """Every text file that is or could be committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = {}
    for name in filter(os.path.isfile, (str(ROOT / line) for line in listed.stdout.splitlines())):
        try:
            found[os.path.relpath(name, ROOT)] = Path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # weights and the like
    return found


def assert_no_findings(findings):
    """Fails with one finding a line."""
    if findings:
        lines = [": ".join(f) if isinstance(f, tuple) else f for f in findings]
        pytest.fail("\n  ".join([f"{len(lines)} findings", *lines]), pytrace=False)


def each(check, files):
    return [finding for path, text in files.items() for finding in check(path, text)]


def facade():
    """The facade's names with what they are; what its folder or its extra lacks is left out."""
    for name in anyjax.__all__:
        try:
            yield name, getattr(anyjax, name)
        except ImportError as error:
            if error.name in {house.module_name(path) for path in product()}:
                raise


def documentation():
    return [f for name, thing in facade() for f in house.undocumented(name, thing)]


def covers():
    """Folders whose modules some test files run, with these files."""
    lines = [name.split() for name in expected_failures("house.txt")]
    return {line[1]: line[3:] for line in lines if line[0] == "covered"}


def mirror():
    """(modules that should have a test file, all test files)"""
    parts = tuple(f"anyjax/{x}/" for x in (*house.FRONTENDS, "hf", "train", "transforms"))
    modules = {path: text for path, text in product().items() if path.startswith(parts)}
    return modules, [path for path in sources() if path.startswith("tests/")]


RULES = {
    "lines": lambda: each(house.lengths, sources()),
    "width": lambda: each(house.widths, sources()),
    "function": lambda: each(house.functions, sources()),
    "old": lambda: each(house.old_names, sources()),
    "docstring": documentation,
    "test": lambda: house.mirrored(*mirror(), covers()),
    "processes": lambda: each(house.processes, sources()),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule):
    listed = expected_failures("house.txt")
    expected = {name: why for name, why in listed.items() if name.split()[0] == rule}
    assert_no_findings(complaints(dict(RULES[rule]()), expected))


def test_exceptions_belong_to_a_rule():
    rules = {name.split()[0] for name in expected_failures("house.txt")}
    assert rules <= {*RULES, "covered"}


def test_tests_that_cover_others_exist():
    reasons = [why for name, why in expected_failures("house.txt").items() if name[:5] == "test "]
    named = {path for why in reasons for path in re.findall(r"tests/[\w/]+\.py", why)}
    assert named and all(re.search(r"tests/[\w/]+\.py", why) for why in reasons)
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_no_file_is_above_the_hard_stop():
    assert_no_findings(
        each(lambda path, text: house.lengths(path, text, house.HARD_LINES), sources())
    )


def test_imports_go_down():
    assert_no_findings(house.floors(product()))


def test_imports_go_down_inside_of_the_frontends():
    assert_no_findings(
        [f for part, order in ROOMS.items() for f in house.rooms(product(), part, order)]
    )


def test_parts_that_could_be_packages_need_little_of_the_others():
    assert_no_findings(house.fences(product()))


def test_private_names_of_others_are_in_one_place():
    pytest.importorskip("transformers")
    from anyjax.hf.generation.request import private as generation
    from anyjax.hf.loading import private as loading
    from anyjax.tensorflow.core import private as tensorflow
    from anyjax.torch.core import private as torch

    known = {n for x in (torch, loading, generation, tensorflow) for n in x.ATTRIBUTES}
    files = {k: v for k, v in product().items() if not k.endswith("/private.py")}
    defined = set().union(*map(house.defined_names, files.values()))
    assert_no_findings(
        [(k, name) for k, v in files.items() for name in house.foreign_private(v, known, defined)]
    )


def test_no_import_cycles():
    assert_no_findings(house.cycles(product()))


def test_the_import_graph_is_the_one_that_grimp_sees():
    grimp = pytest.importorskip("grimp")
    theirs = grimp.build_graph("anyjax", cache_dir=None)
    ours = house.graph(product())
    for module, targets in ours.items():
        # theirs counts lazy imports of the facade, and none by import_module
        seen = theirs.find_modules_directly_imported_by(module)
        assert seen - {"anyjax"} <= targets, module


def test_no_module_shares_its_name_with_a_public_function():
    assert_no_findings(
        house.shadows(product(), [name for name, thing in facade() if callable(thing)])
    )


def test_no_model_is_written_by_hand():
    assert not [path for path in product() if "/models/" in path or path.endswith("/models.py")]


def test_imported_packages_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        requirement.split(">")[0].split("[")[0].lower().replace("_", "-")
        for group in (project["dependencies"], *project["optional-dependencies"].values())
        for requirement in group
    }
    provided = packages_distributions()
    missing = [
        f"{path}: {name}"
        for path, text in product().items()
        for name in house.foreign_imports(text) - set(sys.stdlib_module_names) - {house.PACKAGE}
        for dists in [{x.lower().replace("_", "-") for x in provided.get(name, [name])}]
        if not declared & {NESTED.get(x, x) for x in dists}
    ]
    assert_no_findings(missing)


def test_what_jax_keeps_of_its_internals_is_looked_up_in_one_place():
    """By ``need`` and ``optional``: an import of a name that is gone would say less."""
    assert_no_findings(
        [
            f"{path}: {name}"
            for path, text in product().items()
            if path != "anyjax/jaxprs.py"  # imports them for type checkers alone
            for name in re.findall(
                r"^ *(?:from|import) (jaxlib|jax\.extend|jax\._src)\b", text, re.M
            )
        ]
    )


def test_a_file_of_each_folder_runs_with_all_optimizations():
    (listed,) = re.findall(r"^OPTIMIZED := \$\(addprefix (.*?), ([^)]*)\)", MAKEFILE, re.M | re.S)
    files = {listed[0] + name for name in listed[1].replace("\\", " ").split()}
    assert files <= {*sources()}
    compiling = {path.split("/")[1] for path in sources() if re.match(r"tests/\w+/.*\btest_", path)}
    # Whole suites, and what compiles elsewhere.
    compiling -= {"chips", "cli", "conformance", "docs", "processes", "typing"}
    assert {path.split("/")[1] for path in files} == compiling


def test_text_speaks_of_no_machine_and_no_registry():
    assert_no_findings(each(house.private_text, texts()))
