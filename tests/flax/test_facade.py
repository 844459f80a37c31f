"""anyjax.flax: its names, loaded when they are used."""

from types import SimpleNamespace

import pytest

import anyjax.flax
from anyjax import lazy
from anyjax.errors import MissingDependency


def test_names():
    assert anyjax.flax.to_nnx.__module__ == "anyjax.flax.wrap.nnx"
    assert {"to_nnx", "to_linen", "Buffer"} <= {*dir(anyjax.flax)}
    with pytest.raises(AttributeError, match=r"It has .*to_linen"):
        anyjax.flax.to_haiku


def test_a_missing_package_is_named(monkeypatch):
    def none(name):
        raise ModuleNotFoundError(name, name="flax")

    monkeypatch.setattr(lazy, "importlib", SimpleNamespace(import_module=none))
    with pytest.raises(MissingDependency, match=r"anyjax\[flax\]"):
        anyjax.flax.__getattr__("to_nnx")
