"""Plans of transformers' classes."""

import jax
import numpy as np
import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from anyjax.parallel.plans.declared import KINDS, dimensions

pytestmark = pytest.mark.sample(every=2)

# What says how modules work together, or leaves weights as they are.
OTHERS = {"replicated_with_grad_allreduce", "mla_kv_a_proj", "local_params", "replicate"}
OTHERS |= {"all_reduce", "moe_tp_experts", "moe_identity_expert"}


def shapes(**given):
    return {k: jax.ShapeDtypeStruct(v, np.float32) for k, v in given.items()}


CASES = {
    "colwise": {"w.weight": 0, "w.bias": 0},
    "rowwise": {"w.weight": 1},
    "packed_colwise": {"w.weight": 0, "w.bias": 0},
    "embedding_rowwise": {"w.weight": 0, "w.bias": 0},
    "replicate": {},
}


@pytest.mark.parametrize("kind", CASES)
def test_kinds(kind):
    given = shapes(**{"w.weight": (8, 4), "w.bias": (8,)})
    paths = {k: [k] for k in given}
    assert dimensions({"w": kind}, paths, given, 2) == CASES[kind]


def test_patterns():
    """Stars are numbers, tied weights have two names, experts are stacks; 6 is no multiple of 4."""
    given = shapes(**{"l.11.up.weight": (8, 4), "l.a.up.weight": (8, 4), "embed.weight": (8, 4),
                      "experts.up": (3, 8, 4), "odd.weight": (6, 4)})  # fmt: skip
    paths = {k: [k] for k in given} | {"embed.weight": ["embed.weight", "head.weight"]}
    plan = {"l.*.up": "colwise", "head": "colwise", "experts.up": "rowwise", "odd": "colwise"}
    want = {"l.11.up.weight": 0, "embed.weight": 0, "experts.up": 2}
    assert dimensions(plan, paths, given, 4) == want


def test_all_kinds_of_transformers_are_known():
    kinds = set()
    for name in CONFIG_MAPPING:
        plan = getattr(CONFIG_MAPPING[name], "base_model_tp_plan", None) or {}
        kinds |= {*plan.values()}
    assert kinds - {*KINDS} <= OTHERS, transformers.__version__
