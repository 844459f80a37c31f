"""Private names of torch and transformers: each is looked up, and one that is gone is told."""

import functools
import runpy
import sys
import types
import warnings
from dataclasses import replace

import pytest
import torch

import anyjax.torch  # noqa: F401  (the table of names is whole)
from anyjax import errors, private_names
from anyjax.errors import IncompatibleVersion, UntestedVersion
from anyjax.torch.core import private
from anyjax.torch.core.schema import aten, table
from proof import records

transformers = pytest.importorskip("transformers")
import anyjax.hf.exporters as exporters  # noqa: E402
import anyjax.hf.generation.request.private as generation  # noqa: E402
import anyjax.hf.loading.private as loading  # noqa: E402

pytestmark = pytest.mark.sample(every=5)

TARGETS = [x for x in private_names.TARGETS if not x.made_later and x.exists]
TARGETS = [x for x in TARGETS if not x.owner.startswith("anyjax")]  # which other libraries may drop


def parent(name: str) -> object:
    """What has the last part of a name."""
    module, colon, inside = name.partition(":")
    if not colon:
        return private_names.found(name.rpartition(".")[0])
    return private_names.found(f"{module}:{inside.rpartition('.')[0]}")


def without(name: str) -> dict:
    """``getattr`` and ``hasattr`` that do not find it."""
    place, last = parent(name), name.replace(":", ".").rpartition(".")[2]
    gone = lambda value, attribute: value is place and attribute == last

    def lookup(value, attribute, *default):
        return getattr(value, "no such name" if gone(value, attribute) else attribute, *default)

    has = lambda value, attribute: not gone(value, attribute) and hasattr(value, attribute)
    return {"getattr": lookup, "hasattr": has}


# What is looked up where it is used.
LATER = {x.args[0] for x in vars(private).values() if isinstance(x, functools.partial)}


@pytest.mark.parametrize(
    "name", [x for x in private_names.NAMES if x.startswith("torch.") and x not in LATER]
)
def test_a_name_of_torch_that_is_gone(name, monkeypatch):
    monkeypatch.setattr(private_names, "TARGETS", [])  # the run below adds them once more
    for key, value in without(name).items():
        monkeypatch.setattr(private_names, key, value, raising=False)
    with pytest.raises(IncompatibleVersion) as caught:
        names = runpy.run_path(private.__file__)
        next(
            x for x in names.values() if isinstance(x, private_names.Gone)
        )()  # the feature is used
    assert_explains(caught.value, name, "torch", torch.__version__)


NAMES = [x for x in private_names.NAMES if x.startswith("transformers")]


@pytest.mark.parametrize("name", [x for x in NAMES if parent(x) is not None])
def test_a_name_of_transformers_that_is_gone(name, monkeypatch):
    for key, value in without(name).items():
        monkeypatch.setattr(private_names, key, value, raising=False)
    with pytest.raises(IncompatibleVersion) as caught:
        for file in (loading.__file__, generation.__file__, exporters.__file__):
            runpy.run_path(file)
        private.all_masks()
        for target in private_names.TARGETS:
            replace(target).place  # looked up anew
    assert_explains(caught.value, name, "transformers", transformers.__version__)


@pytest.mark.parametrize("target", TARGETS, ids=lambda x: x.path)
def test_a_target_that_is_gone(target, monkeypatch):
    for key, value in without(f"{target.owner}.{target.name}").items():
        monkeypatch.setattr(private_names, key, value, raising=False)
    with pytest.raises(IncompatibleVersion) as caught:
        replace(target).place  # looked up anew
    package = target.package
    version = sys.modules[package].__version__
    assert_explains(caught.value, target.path, package, version)
    assert target.feature in str(caught.value)


def assert_explains(error: Exception, name: str, package: str, version: str) -> None:
    """Whether the error says what is gone and which version is installed."""
    lines = str(error).splitlines()
    assert len(lines) == 5
    assert name.replace(":", ".") in lines[0] and "needs it for" in lines[0]
    assert f"{package} {version.partition('+')[0]}" in lines[1]


def test_the_names_of_the_list_are_found():
    assert len(private_names.NAMES) > 60
    with pytest.raises(IncompatibleVersion, match=r"torch\.no_such_name is gone"):
        private_names.need("torch.no_such_name", "nothing")
    del private_names.NAMES["torch.no_such_name"]
    with pytest.raises(IncompatibleVersion, match=r"torch\.no\.such\.module\.name is gone"):
        private_names.need("torch.no.such.module:name", "nothing")
    del private_names.NAMES["torch.no.such.module:name"]


def test_an_optional_name_that_is_gone_raises_where_it_is_used():
    name = private_names.optional("torch.no_such_name", "a feature")
    del private_names.NAMES["torch.no_such_name"]
    assert {name: 1}[name]  # it may stand in a table
    uses = [
        lambda: name(1),
        lambda: name.attribute,
        lambda: name[0],
        lambda: 1 in name,
        lambda: [*name],
        lambda: isinstance(1, name),
        lambda: types.new_class("Sub", (name,)),
    ]
    for use in uses:
        with pytest.raises(IncompatibleVersion, match=r"torch\.no_such_name is gone.*a feature"):
            use()


@pytest.mark.parametrize(("installed", "warns"), [("2.9.1", 1), ("2.10.3", 0), ("2.16.0", 1)])
def test_an_untested_version_is_told_once(installed, warns, monkeypatch):
    """A repair of a tested version is as good as tested."""
    monkeypatch.setattr(torch, "__version__", installed)
    monkeypatch.setitem(errors.TESTED, "torch", ("2.10.0", "2.15.0"))
    private_names.check_version.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            private_names.check_version("torch")
    private_names.check_version.cache_clear()
    assert len(caught) == warns
    for warning in caught:
        assert warning.category is UntestedVersion
        text = str(warning.message)
        assert "torch 2.10.0 to 2.15.0" in text and installed in text


def test_targets_of_other_versions_are_left_alone():
    target = lambda **versions: private_names.Target("torch", "x", "a feature", **versions)
    assert target().exists and target(since="2.0").exists and target(until="1000").exists
    assert not target(since="1000").exists and not target(until="2.0").exists


def test_rows_of_operators_that_this_torch_lacks_are_left_out():
    asked = {"_mock_name"}  # by Python's inspection of namespaces
    assert aten.absent - asked <= {"cholesky", "linalg__powsum"}  # until 2.14, and since 2.11
    before = len(table)

    @table.lowers(aten.no_such_operator.default)
    def lowering(anything):
        return anything

    aten.absent.discard("no_such_operator")
    assert len(table) == before


def test_the_tested_versions_are_those_that_were_recorded():
    """proof/results/versions.csv: what `make compat`, `make lowest` and `make newest` wrote."""
    runs = records.read(records.RESULTS / "versions.csv")
    numbers = lambda version: [int(x) for x in version.split(".")]
    for name, tested in errors.TESTED.items():
        recorded = {x.get(name) or x[f"{name}-cpu"] for x in runs}
        assert tested == (min(recorded, key=numbers), max(recorded, key=numbers)), name
