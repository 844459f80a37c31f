"""Whether `anyjax.verify` can be believed: faults of all kinds that are planted into modules of all
kinds, and healthy models. A fault that changes no number beyond rounding is none and is skipped.
"""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import anyjax
from anyjax.compare import store
from anyjax.errors import AnyjaxError
from tests.conformance.planted.healthy import PAIRS
from tests.conformance.planted.kinds import KINDS
from tests.conformance.planted.modules import MODULES, module
from tests.expectations import expected_failures

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.sample(every=170)]
MISSED = expected_failures("planted_faults.txt")
ROUNDING = 2e-6  # of the largest value: what sums in another order differ by
CASES = [f"{name}-{kind}" for kind, name in itertools.product(KINDS, MODULES)]


def computed(torch_module, args, kwargs):
    """Returns what a copy of a module returns, and the buffers that it leaves."""
    own = copy.deepcopy(torch_module)
    tensor = lambda x: torch.from_numpy(x) if isinstance(x, np.ndarray) else x
    args, kwargs = pytree.tree_map(tensor, (args, kwargs))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        out = own(*args, **kwargs)
    leaves = [x for x in pytree.tree_leaves(out) if isinstance(x, torch.Tensor)]
    return leaves + [x for _, x in own.named_buffers()]


def same(a, b):
    """Returns whether two lists of tensors are the same but for rounding."""
    if [(x.shape, x.dtype) for x in a] != [(x.shape, x.dtype) for x in b]:
        return False
    return all(map(_same_values, a, b))


def _same_values(a, b):
    if not a.is_floating_point():
        return torch.equal(a, b)
    a, b = a.double(), b.double()
    shown = b.isfinite() & (b.abs() < 1e30)
    if not torch.equal(a[~shown].nan_to_num(1.0), b[~shown].nan_to_num(1.0)):
        return False
    a, b = a[shown], b[shown]
    return not b.numel() or bool((a - b).abs().max() <= ROUNDING * b.abs().max())


def planted(case):
    """Returns (faulty module, healthy one, args, kwargs); skips what is no fault."""
    name, _, kind = case.partition("-")
    healthy, args, kwargs = module(name)
    faulty = copy.deepcopy(healthy)
    if not KINDS[kind](faulty):
        pytest.skip("there is nothing to change")
    try:
        values = computed(faulty, args, kwargs)
    except (RuntimeError, IndexError, ValueError) as error:
        pytest.skip(f"torch itself refuses it: {error}")
    if same(values, computed(healthy, args, kwargs)):
        pytest.skip("it computes the same")
    return faulty, healthy, args, kwargs


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_told(case, monkeypatch, record_property, request):
    faulty, healthy, args, kwargs = planted(case)
    if case in MISSED:
        request.applymarker(pytest.mark.xfail(reason=MISSED[case], strict=True))
    monkeypatch.setattr(store, "LIMIT", 0)  # op by op: operators are compiled once for all cases
    try:
        report = anyjax.verify(anyjax.from_torch(faulty), *args, reference=healthy, **kwargs)
    except AnyjaxError:
        return
    assert not report.ok, str(report)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_healthy_model_is_not_blamed(pair):
    model, args, kwargs, reference = PAIRS[pair]()
    report = anyjax.verify(model, *args, reference=reference, **kwargs)
    assert report.ok, str(report)
