"""Operators on request, and folders that reproduce a fault by themselves."""

from __future__ import annotations

import runpy
from dataclasses import replace

import jax
import numpy as np
import pytest
import tensorflow as tf
import torch

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.torch.core.schema import aten, table

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x):
        x = self.norm(self.linear(x)) * 2
        x = torch.nn.functional.softplus(x, 1, threshold=20.0)
        return x + torch.nn.functional.dropout(x, 0.5)


@pytest.fixture
def wrong_softplus(monkeypatch):
    """A lowering that is off by a thousandth."""
    op = aten.softplus.default
    wrong = lambda self, beta=1, threshold=20: jax.nn.relu(self) + 0.001
    monkeypatch.setitem(table._rows, op, replace(table[op], lowering=wrong))
    monkeypatch.setattr(table, "version", table.version + 1)


def status_of(folder):
    """Runs the folder's script; returns its exit status."""
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(folder / "reproduce.py"), run_name="__main__")
    return ended.value.code


def test_operators_on_request():
    torch.manual_seed(0)
    model = anyjax.from_torch(torch.nn.Sequential(Block(), Block()).eval())
    report = anyjax.verify(model, X, operators=r"^0$")
    assert report.ok, str(report)
    names = [x.path for x in report.operators]
    assert {"0/mul", "0/softplus", "0/add"} <= {*names} or "0/__mul__" in names, names
    assert all(x.path.startswith("0/") for x in report.operators)
    assert f"{len(names)} operators" in report.verdict
    nested = anyjax.verify(model, X, operators="^1").operators
    assert {"1.linear/linear", "1.norm/layer_norm"} <= {x.path for x in nested}
    assert report.as_dict()["operators"][0]["path"] == names[0]
    with pytest.raises(WrongArguments, match="no module has a path"):
        anyjax.verify(model, X, operators="layers")


@pytest.mark.usefixtures("wrong_softplus")
def test_a_wrong_operator_is_named_with_its_line_and_reproduced(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = anyjax.from_torch(torch.nn.Sequential(Block(), torch.nn.Linear(6, 6)).eval())
    report = anyjax.verify(model, X, operators="^0")
    assert [x.path for x in report.faults if "/" in x.path] == ["0/softplus"]
    assert report.places["0/softplus"].startswith("line")
    assert "test_reproduce.py" in report.places["0/softplus"]
    assert report.reproduce(tmp_path / "fault") == "0/softplus"
    script = (tmp_path / "fault" / "reproduce.py").read_text()
    assert "torch.nn.functional.softplus(x0, 1, threshold=20.0)" in script
    assert len(script.splitlines()) < 30
    assert status_of(tmp_path / "fault") == 3
    monkeypatch.undo()
    assert status_of(tmp_path / "fault") == 0


def test_a_module_that_was_changed_is_reproduced(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)).eval()
    model = anyjax.from_torch(module)
    module[1].eps = 0.1
    report = anyjax.verify(model, X)
    assert report.reproduce(tmp_path / "fault") == "1"
    assert status_of(tmp_path / "fault") == 3
    assert report.reproduce(tmp_path / "fault") == "1"  # again, over its own folder


def test_nodes_of_tensorflow(tmp_path):
    function = tf.function(lambda x: tf.math.reduce_mean(tf.nn.relu(x) * 2, 1))
    other = tf.function(lambda x: tf.math.reduce_mean(tf.nn.softplus(x, name="Relu") * 2, 1))
    model = anyjax.from_tensorflow(function, X)
    report = anyjax.verify(model, X, reference=other)
    assert report.faults[0].path == "Relu"
    assert report.reproduce(tmp_path / "fault") == "Relu"
    assert status_of(tmp_path / "fault") == 3
    variable = tf.Variable(tf.ones(6))
    model = anyjax.from_tensorflow(tf.function(lambda x: x * variable), X)
    variable.assign(variable * 2)
    with pytest.raises(Unsupported, match="a variable's value differs"):
        anyjax.verify(model, X).reproduce(tmp_path / "variable")


def test_what_has_no_folder(tmp_path):
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(6, 6)))
    report = anyjax.verify(model, X)
    with pytest.raises(WrongArguments, match="no fault"):
        report.reproduce(tmp_path / "fault")
    report.save_golden(tmp_path / "golden")
    other = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(6, 6)))
    golden = anyjax.verify(other, X, reference=tmp_path / "golden")
    with pytest.raises(Unsupported, match="golden"):
        golden.reproduce(tmp_path / "fault")
    with pytest.raises(Unsupported, match="operators="):
        anyjax.verify(model, X, reference=tmp_path / "golden", operators="0")


def test_progress():
    model = anyjax.from_torch(torch.nn.Linear(6, 6))
    steps = []
    anyjax.verify(model, X, progress=lambda *step: steps.append(step))
    assert [x[1:] for x in steps] == [(i, 5) for i in range(5)]
    assert steps[0][0] == "torch" and steps[-1][0] == "JAX in 64 bits"
