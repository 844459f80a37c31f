"""Facades: what type checkers read of them is what is loaded."""

import ast
import importlib
from pathlib import Path

import pytest

import anyjax
from anyjax.lazy import Facade

PACKAGES = (
    "anyjax", "anyjax.flax", "anyjax.hf", "anyjax.parallel", "anyjax.torch", "anyjax.transforms"
)  # fmt: skip


def made(package: str) -> Facade:
    pytest.importorskip(package.replace("anyjax.", "") if package == "anyjax.torch" else "jax")
    return vars(importlib.import_module(package))["__getattr__"].__self__


def read_by_checkers(file: str) -> dict[str, str]:
    """The names that a file imports under TYPE_CHECKING, with the module of each."""
    tree = ast.parse(Path(file).read_text())
    (block,) = [
        x for x in tree.body if isinstance(x, ast.If) and ast.unparse(x.test) == "TYPE_CHECKING"
    ]
    return {name.name: line.module for line in block.body for name in line.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_read_what_is_loaded(package):
    facade = made(package)
    loaded = {**facade.homes, **dict.fromkeys(facade.submodules, package)}
    assert read_by_checkers(facade.module.__file__) == loaded


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_lists_what_users_type(package):
    module = made(package).module
    listed = {name for name in dir(module) if not name.startswith("__")}
    assert {*module.__all__} <= listed <= {*module.__all__, *made(package).submodules}


# Facades read their names from ``read_by_checkers``; errors offers every class that it defines.
PARTS = sorted({*anyjax._PARTS} - {x.removeprefix("anyjax.") for x in PACKAGES} - {"errors"})


@pytest.mark.parametrize("part", PARTS)
def test_editors_complete_what_a_part_offers(part):
    """Without running it: its names are imported or defined in its file, and dir has them."""
    module = pytest.importorskip(f"anyjax.{part}")
    body = [*ast.parse(Path(module.__file__).read_text()).body]
    for block in [x for x in body if isinstance(x, (ast.If, ast.With))]:
        body += [*block.body, *getattr(block, "orelse", [])]
    static = {x.name for x in body if isinstance(x, (ast.ClassDef, ast.FunctionDef))}
    for line in body:
        if isinstance(line, ast.ImportFrom):
            static |= {name.asname or name.name for name in line.names}
        elif isinstance(line, (ast.Assign, ast.AnnAssign)):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            static |= {
                node.id for x in targets for node in ast.walk(x) if isinstance(node, ast.Name)
            }
    assert {*module.__all__} <= static, {*module.__all__} - static
    assert {*module.__all__} <= {*dir(module)}


@pytest.mark.parametrize(
    ("package", "wrong", "near"),
    [
        ("flax", "to_nn", "to_nnx or to_linen"),
        ("hf", "pipelines", "pipeline"),
        ("torch", "onjax", "on_jax"),
    ],
)
def test_wrong_names(package, wrong, near):
    module = made(f"anyjax.{package}").module
    with pytest.raises(AttributeError, match=f"'{wrong}'; did you mean {near}.*It has"):
        getattr(module, wrong)


def test_what_is_loaded_stays(monkeypatch):
    facade = made("anyjax.flax")
    monkeypatch.delitem(vars(facade.module), "Buffer", raising=False)
    pytest.importorskip("flax")
    assert facade.module.Buffer is vars(facade.module)["Buffer"]
