"""The division of an explored model over a mesh."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments
from anyjax.parallel._shard import specs
from tests.explorer.models import X, model


def test_specs_are_those_of_shard_and_bytes_those_of_a_part():
    source = model()
    report = anyjax.explore(source, X, mesh={"model": 4}, plan="tp")
    mesh = jax.sharding.AbstractMesh((4,), ("model",))
    expected = specs(source, mesh, "tp", (X,))
    assert {*expected} <= {*report.sharding.placements}
    for name, spec in expected.items():
        x, placement = source.params[name], report.sharding.placements[name]
        axes = [(a,) if a else () for a in (*spec, *[None] * x.ndim)[: x.ndim]]
        assert [*placement.spec] == axes
        parts = [n // (4 if a else 1) for n, a in zip(x.shape, axes)]
        assert [*placement.shape] == parts and placement.bytes == 4 * int(np.prod(parts))
    assert any(placement.spec[0] for placement in report.sharding.placements.values())


def test_the_estimate_is_that_of_parallel():
    source = model()
    sharding = anyjax.explore(source, X, mesh={"model": 2}).sharding
    estimate = anyjax.parallel.estimate(source, "v6e-2", "tp", X)
    assert sharding.estimate.memory == estimate.memory
    assert sharding.estimate.products == estimate.products
    calls = lambda x: [(c.kind, c.axes, c.calls, c.bytes) for c in x.communication]
    assert calls(sharding.estimate) == calls(estimate) != []
    data = anyjax.explore(source, X, mesh={"model": 2}).as_dict()["sharding"]
    assert data["peak"] == estimate.peak and data["collectives"][0]["calls"] > 0


def test_a_mesh_of_jax():
    mesh = jax.make_mesh((1,), ("model",))
    report = anyjax.explore(model(), X, mesh=mesh)
    assert report.sharding.estimate.mesh == {"model": 1}


def test_a_plan_that_does_not_fit():
    with pytest.raises(WrongArguments, match="of the weights over 3 chips"):
        anyjax.explore(model(), X, mesh={"model": 3})
    narrow = anyjax.from_torch(torch.nn.Linear(8, 8))
    with pytest.raises(WrongArguments, match="does not divide over 4 chips"):
        anyjax.explore(narrow, np.ones((2, 8), np.float32), mesh={"data": 4}, plan="fsdp")


def test_without_a_program_there_is_none():
    report = anyjax.explore(model(), mesh={"model": 2})
    assert report.sharding is None and "Sharding is missing" in report.notes[-1]
