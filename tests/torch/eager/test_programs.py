"""One program for each operator and shape: numbers and places that vary make no new ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

import anyjax
from anyjax.torch import interop
from anyjax.torch.eager import programs


def new_programs(code):
    before = len(programs.PROGRAMS)
    code()
    return len(programs.PROGRAMS) - before


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("foreach", [False, True])
def test_steps_of_an_optimizer(optimizer, foreach):
    model, x = interop.to_jax(nn.Linear(3, 3)), interop.to_jax(torch.ones(2, 3))
    optimizer = optimizer(model.parameters(), foreach=foreach)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step():
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()
        schedule.step()

    for _ in range(3):
        step()
    assert new_programs(step) == 0
    assert all(p.compiled for p in programs.PROGRAMS.values() if p.varying)


def test_rows_of_a_sequence():
    x = interop.to_jax(torch.arange(24.0).reshape(6, 4))

    def code(i):
        row = torch.tanh(x[i]) + x[i : i + 1].sum() + x.unbind(0)[i] + x.split(1)[i][0]
        x[i] = row
        return row

    with anyjax.torch.on_jax():
        code(0)
        assert new_programs(lambda: [code(i) for i in range(1, 6)]) == 0
    want = torch.arange(24.0).reshape(6, 4)
    assert torch.allclose(x.torch(), torch.tanh(want) + want.sum(1, keepdim=True) + 2 * want)


def test_numbers_that_only_look_alike():
    x = interop.to_jax(torch.tensor([2, -1], dtype=torch.int64))
    y = interop.to_jax(torch.ones(2))
    assert [(x * n).dtype for n in (1, True, 1.0)] == [torch.int64, torch.int64, torch.float32]
    assert [str((y * n)[0].item()) for n in (0.0, -0.0)] == ["0.0", "-0.0"]
    assert torch.full_like(y, float("nan")).isnan().all()
    assert [torch.nn.functional.hardtanh(y, -s, s)[0].item() for s in (0.5, 0.25)] == [0.5, 0.25]


def test_a_lowering_of_ones_own_is_seen_at_once():
    torch.library.define("on_jax_programs::scale", "(Tensor x) -> Tensor")
    op, x = torch.ops.on_jax_programs.scale, interop.to_jax(torch.ones(1))
    for factor in (2.0, 3.0):
        anyjax.lowers(op)(lambda x, factor=factor, /: factor * x)
        assert op(x).item() == factor


def test_what_depends_on_values_is_not_compiled():
    x = interop.to_jax(torch.tensor([1, 0, 2]))
    assert [x.nonzero().tolist() for _ in range(2)] == [[[0], [2]]] * 2
    assert any(not p.compiled for p in programs.PROGRAMS.values())


def test_later_programs_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(programs, "LARGEST", 0)
    x = interop.to_jax(torch.linspace(0, 1, 7))
    assert new_programs(lambda: torch.testing.assert_close(x.cos().torch(), x.torch().cos())) == 0


def test_precision_and_ranks_are_torchs():
    x = interop.to_jax(torch.ones(2, 3))
    with jax.numpy_rank_promotion("raise"):
        assert (x + x[0]).shape == (2, 3)
    text = str(jax.make_jaxpr(lambda a: interop.call_torch(torch.mm, a, a))(jnp.ones((2, 2))))
    assert "HIGHEST" in text
