"""tojax.flax: its names, loaded when they are used."""

from types import SimpleNamespace

import pytest

import tojax
from tojax.errors import MissingDependency


def test_names():
    assert tojax.flax.to_nnx.__module__ == "tojax.flax.wrap.nnx"
    assert {"to_nnx", "to_linen", "Buffer"} <= {*dir(tojax.flax)}
    with pytest.raises(AttributeError, match=r"it has .*to_linen"):
        tojax.flax.to_haiku


def test_a_missing_package_is_named(monkeypatch):
    def none(name):
        raise ModuleNotFoundError(name, name="flax")

    monkeypatch.setattr(tojax.flax, "importlib", SimpleNamespace(import_module=none))
    with pytest.raises(MissingDependency, match=r"tojax\[flax\]"):
        tojax.flax.__getattr__("to_nnx")
