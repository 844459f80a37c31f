"""Figures of ``anyjax.explore``: FLOPs by formula, sums over modules, names of modules."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments
from anyjax.explorer.modules import Module
from anyjax.explorer.work import Tally
from anyjax.parallel.estimation.call import forward_call, trace_call
from anyjax.parallel.estimation.cost.work import count_work
from anyjax.parallel.estimation.divide.partition import divide, replicated
from tests.explorer.models import HEADS, LENGTH, ROWS, WIDTH, X, model

LINEAR = 2 * ROWS * LENGTH * WIDTH * WIDTH
FORMULAS = {
    "0.attention.query": LINEAR,
    "0.attention": 4 * LINEAR + 2 * 2 * ROWS * HEADS * LENGTH * LENGTH * (WIDTH // HEADS),
    "0.up": 4 * LINEAR,
    "0.idle": 0,
    "1": 4 * LINEAR,
}


@pytest.fixture(scope="module")
def report():
    return anyjax.explore(model(), X)


def by_path(report) -> dict[str, Module]:
    return {x.path: x for x in report.modules}


def test_flops_are_those_of_the_formulas(report):
    modules = by_path(report)
    assert {path: modules[path].work.products for path in FORMULAS} == FORMULAS
    block = FORMULAS["0.attention"] + FORMULAS["0.up"]
    assert modules["0"].work.products == block
    assert modules[""].work.products == 2 * block + 4 * LINEAR


def test_sums_over_modules_are_the_total(report):
    sums = Tally()
    for module in report.modules:
        for tally in module.primitives.values():
            sums.add(tally)
    assert sums == report.total.work
    traced = trace_call(forward_call(model(), (X,)))
    inputs = [replicated(traced.program.values[v]) for v in traced.program.inputs]
    work = count_work(divide(traced.program, {}, inputs))
    assert sums.products == sum(work.products.values()) > 0
    assert (sums.elementwise, sums.traffic) == (work.other_flops, work.traffic)
    assert sums.equations == len(traced.program.nodes)


def test_params_and_bytes(report):
    source = model()
    modules = by_path(report)
    assert report.total.params == sum(x.size for x in source.params.values())
    arrays = [*source.params.values(), *source.state.values()]
    assert report.total.bytes == sum(x.nbytes for x in arrays) == sum(report.dtypes.values())
    assert modules["0.up"].params == 4 * WIDTH * WIDTH + 4 * WIDTH
    assert modules["0"].bytes == 4 * modules["0"].params + 4 * 4  # the buffer
    assert modules["0"].arrays == ["0.scale"] and modules["0.attention"].kind == "Attention"
    assert sum(len(x.arrays) for x in report.modules) == len(report.arrays) == len(arrays)


def test_bytes_moved_of_a_product():
    x = np.ones((16, 32), np.float32)
    report = anyjax.explore(anyjax.from_torch(torch.nn.Linear(32, 64, bias=False)), x)
    assert report.total.work.traffic == 4 * (16 * 32 + 32 * 64 + 16 * 64)


def test_the_modules_are_those_of_torch(report):
    source = model()
    expected = [path for path, _ in source.source.module.named_modules()]
    assert [x.path for x in report.modules] == expected


def test_programs_have_their_modules_equations(report):
    text = report.programs["0.attention"]
    assert text.count("dot_general") == 6 and "# inputs: query.weight, _, query.bias" in text
    assert report.programs["2.attention"] == text and "0.idle" not in report.programs
    assert report.programs[""].count("dot_general") == 15


def test_inputs_and_notes(report):
    assert report.inputs == {"input": f"float32[{ROWS}, {LENGTH}, {WIDTH}]"}
    assert report.traced and report.notes == ()
    assert "Sequential from torch" in str(report) and "0.attention.query" in str(report)


def test_json_is_strict(report):
    data = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert data["modules"][0]["products"] == report.total.work.products
    (scale,) = [x for x in data["arrays"] if x["name"] == "0.scale"]
    assert scale["statistics"]["nans"] == scale["statistics"]["infinities"] == 1
    assert not scale["trained"] and scale["statistics"]["zeros"] == 0.25


def test_shapes_are_enough():
    source = model()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), source)
    report = anyjax.explore(shapes, X)
    assert report.statistics == {}
    assert [x.work for x in report.modules] == [x.work for x in anyjax.explore(source, X).modules]


def test_values_are_not_read_if_not_asked_for(monkeypatch):
    monkeypatch.setattr("anyjax.explorer._explore.statistics", pytest.fail)
    assert anyjax.explore(model(), X, values=False).statistics == {}


def test_rolled_layers_count_every_round():
    block = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    source = anyjax.from_torch(torch.nn.Sequential(*(block() for _ in range(6))))
    x = np.ones((2, 8), np.float32)
    flat, rolled = (anyjax.explore(m, x) for m in (source, anyjax.transforms.roll(source, x)))
    assert rolled.total.work.products == flat.total.work.products == 6 * 2 * 2 * 8 * 8
    modules = by_path(rolled)
    assert modules["0.0"].work.products == rolled.total.work.products
    assert modules["0.0"].params == rolled.total.params == flat.total.params
    assert "all rounds" in rolled.notes[0] and "dot_general" in rolled.programs["0.0"]


def test_a_call_that_is_missing_or_wrong():
    report = anyjax.explore(model())
    assert not report.traced and "there is no call to trace" in report.notes[0]
    assert report.total.work == Tally() and len(report.statistics) == len(report.arrays)
    assert "-" in str(report)
    with pytest.raises(WrongArguments):
        anyjax.explore(model(), X, X, X)


def test_operators_that_are_missing_are_told():
    def shapes(x):
        return torch.tensor(x.tolist())

    report = anyjax.explore(anyjax.from_torch(shapes), X)
    assert not report.traced and "FLOPs, bytes moved and programs are missing" in report.notes[0]


def test_saved_models(tmp_path):
    model().save(tmp_path / "saved", X)
    report = anyjax.explore(anyjax.load(tmp_path / "saved"), X)
    assert "a saved program does not tell its operations" in report.notes[0]
    assert by_path(report)["0.up"].params == 4 * WIDTH * WIDTH + 4 * WIDTH


def test_progress():
    steps = []
    anyjax.explore(model(), X, progress=lambda *step: steps.append(step))
    assert steps[0] == ("tracing", 0, 1) and steps[-1][1] == steps[-1][2] - 1
