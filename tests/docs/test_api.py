"""Each public name stands on one page of the API, once, and the index names what users type."""

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

import anyjax

FOLDER = Path(__file__).parents[2] / "docs" / "api"
PAGES = {file.stem: file.read_text() for file in FOLDER.glob("*.md")}
DIRECTIVE = re.compile(
    r"^\.\. (?:auto|py:)(function|class|exception|decorator|module):: ([\w.]+)", re.MULTILINE
)
# Modules that a part offers as names: what is in them counts.
MODULES = ("anyjax.torch.interop", "anyjax.tensorflow.config", "anyjax.tensorflow.experimental",
           "anyjax.train.losses")  # fmt: skip
# Names of tf2jax and torchax have one line together in the index.
TOGETHER = ("anyjax.tensorflow.", "anyjax.torch.interop.", "anyjax.torchax.")


def resolved(path: str) -> object:
    """What a dotted name stands for; the last parts may be attributes."""
    value: object = anyjax
    for name in path.split(".")[1:]:
        value = getattr(value, name)
    return value


def documented() -> Counter[str]:
    return Counter(name for page in PAGES.values() for _, name in DIRECTIVE.findall(page))


def public() -> dict[int, list[str]]:
    """The names of each public object, by the object's id; modules give what is in them."""
    names = [f"anyjax.{name}" for name in anyjax.__all__]
    for part in anyjax._PARTS:
        module = importlib.import_module(f"anyjax.{part}")
        listed = getattr(module, "__all__", None)
        if listed is None:  # errors
            listed = [k for k, v in vars(module).items() if is_error(v)]
        names += [f"anyjax.{part}.{name}" for name in listed]
    names += [f"anyjax.torch.interop.{name}" for name in anyjax.torch.interop.__all__]
    named: dict[int, list[str]] = {}
    for name in names:
        if name not in MODULES:
            named.setdefault(id(resolved(name)), []).append(name)
    return named


def is_error(value: object) -> bool:
    return inspect.isclass(value) and value.__module__ == "anyjax.errors"


@pytest.fixture(scope="module", autouse=True)
def packages():
    for package in ("torch", "transformers", "tensorflow", "flax", "optax", "onnx", "jax2onnx"):
        pytest.importorskip(package)


def test_each_public_name_stands_on_one_page():
    names = documented()
    assert [name for name, count in names.items() if count > 1] == []
    wrong = {
        tuple(aliases): [name for name in aliases if name in names] for aliases in public().values()
    }
    assert {k: v for k, v in wrong.items() if len(v) != 1} == {}


def test_what_the_pages_describe_is_there():
    for name in documented():
        value = importlib.import_module(name) if name in MODULE_PAGES else resolved(name)
        assert inspect.getdoc(value), name


MODULE_PAGES = {name for page in PAGES.values() for kind, name in DIRECTIVE.findall(page)
                if kind == "module"}  # fmt: skip


def test_the_index_names_what_users_type():
    listed = Counter(re.findall(r"\{py:obj\}`([\w.]+)`", PAGES["index"]))
    assert {name for name, count in listed.items() if count > 1} == set()
    for name in listed:
        assert inspect.getdoc(resolved(name)), name
    described = [x for x in documented() if not x.startswith(("anyjax.errors", *MODULE_PAGES))]
    missing = [x for x in described if x not in listed and not x.startswith(TOGETHER)]
    assert missing == ["anyjax.table.Table", "anyjax.table.Signature", "anyjax.table.Param",
                       "anyjax.source.Source", "anyjax.source.SourceBase",
                       "anyjax.source.SourceCache"]  # fmt: skip


def test_functions_say_what_they_take_and_show_an_example():
    """All but one-liners of torchax's names, whose text is their whole story."""
    poor = []
    for name in documented():
        value = resolved(name) if name not in MODULE_PAGES else None
        if not inspect.isfunction(value):
            continue
        text = inspect.getdoc(value) or ""
        takes = inspect.signature(value).parameters
        if takes and "Args:" not in text and not name.startswith(TOGETHER):
            poor.append(f"{name}: Args")
        if "Example:" not in text and not name.startswith(TOGETHER[1:]):
            poor.append(f"{name}: Example")
    assert poor == []


def test_a_name_twice_and_a_name_that_is_missing_are_seen(monkeypatch):
    loading = PAGES["loading"]
    monkeypatch.setitem(PAGES, "again", loading)
    with pytest.raises(AssertionError):
        test_each_public_name_stands_on_one_page()
    monkeypatch.delitem(PAGES, "again")
    monkeypatch.setitem(PAGES, "loading", loading.replace(".. autofunction:: anyjax.load\n", ""))
    with pytest.raises(AssertionError, match=r"anyjax\.load"):
        test_each_public_name_stands_on_one_page()
