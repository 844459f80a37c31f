"""Mixtures of experts whose experts are divided over devices."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import transformers
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.calls.explicit_mesh import automatic
from anyjax.errors import WrongArguments
from anyjax.parallel import shard
from anyjax.parallel._explain import compile_forward
from anyjax.parallel._shard import specs
from anyjax.parallel.collectives import collective_calls, size_of
from anyjax.parallel.forward import Forward
from anyjax.train import TrainState, make_step
from tests.parallel.architectures import DECODER, IDS, cross_entropy
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

LATENT = dict(kv_lora_rank=16, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8)
GROUPS = dict(n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1)
SMALL = dict(num_experts_per_tok=2, moe_intermediate_size=32)
KINDS = {
    "mixtral": ("MixtralForCausalLM", dict(num_local_experts=8)),
    "qwen3": ("Qwen3MoeForCausalLM", dict(num_experts=8, head_dim=8) | SMALL),
    "deepseek": ("DeepseekV3ForCausalLM", GROUPS | SMALL | LATENT | dict(first_k_dense_replace=1)),
}
MESHES = [dict(expert=8), dict(expert=4, model=2), dict(data=2, ep=2, model=2), dict(data=2, ep=4)]
SAMPLE = {("mixtral", 0), ("deepseek", 0)}  # the others are in `make conformance`
CASES = [
    pytest.param(k, axes, marks=[] if (k, i) in SAMPLE else pytest.mark.conformance,
                 id="-".join((k, *axes)))
    for k in KINDS for i, axes in enumerate(MESHES)
]  # fmt: skip


def build(name):
    cls, sizes = KINDS[name]
    kind = getattr(transformers, cls)
    torch.manual_seed(0)
    return anyjax.from_torch(kind(kind.config_class(**DECODER | sizes)).eval())


def mesh(axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes))


def plan_for(axes):
    return "tp" if "data" not in axes else "tp+fsdp" if "model" in axes else "fsdp+expert"


def loss(model, batch):
    """The square of the logits beside the text: routers have gradients, too."""
    logits = model(**batch, use_cache=False).logits[:, :-1]
    return cross_entropy(logits, batch["input_ids"][:, 1:]).mean()


@pytest.mark.parametrize(("name", "axes"), CASES)
def test_experts(name, axes):
    """Outputs, gradients, a step of training and text of one device."""
    model, inputs = build(name), {"input_ids": np.tile(IDS["input_ids"], (2, 1))}
    there = shard(model, mesh(axes), plan_for(axes))
    stacks = [x for k, x in there.params.items() if k.endswith("experts.gate_up_proj")]
    assert stacks and {x.sharding.spec[0] for x in stacks} <= {"expert", "ep"}

    tx = optax.sgd(1e3)  # so that steps are no smaller than weights
    states = [TrainState.create(x, tx) for x in (model, there)]
    step = make_step(loss, tx, donate=False)
    (one, told), (many, found) = (step(s, inputs) for s in states)
    assert_close(there(**inputs).logits, model(**inputs).logits, reduction=512)
    assert_close(found["loss"], told["loss"], reduction=512)
    for key, x in many.params.items():  # the gradient, by what it changed
        got, want = (np.asarray(s.params[key] - model.params[key]) for s in (many, one))
        assert_close(got, want, reduction=512, scale=float(abs(want).max()) + 1e-4)
        assert x.sharding.is_equivalent_to(there.params[key].sharding, x.ndim)

    ids = inputs["input_ids"][:2, :5]
    want = anyjax.generate(model, ids, max_new_tokens=4)
    np.testing.assert_array_equal(anyjax.generate(there, ids, max_new_tokens=4), want)


@pytest.mark.parametrize("gradient", [False, True])
def test_no_expert_is_gathered(gradient):
    """Rows meet the experts where these are, and results are summed over devices."""
    model, there = build("mixtral"), mesh(dict(expert=4, model=2))
    ids = np.zeros((2, 11), np.int32)
    found = specs(model, there, "tp")
    forward = Forward.of(model, (ids,), {"use_cache": False})
    if gradient:
        text = gradients_of(forward, there, found)
    else:
        text = compile_forward(forward, there, found).as_text()
    traffic = [*collective_calls(text)]
    of = lambda kind: [size_of(*x) for k, arrays in traffic if k == kind for x in arrays]
    weights = min(x.nbytes for k, x in model.params.items() if "experts" in k) // 8
    assert max(of("all-gather"), default=0) < 1000 < weights
    assert max(of("all-reduce")) >= 22 * 64 * 4  # what the experts of a layer give


def gradients_of(forward, there, found):
    at = lambda x, spec: jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=jax.NamedSharding(automatic(there), spec)
    )
    model = forward.model
    mean = lambda *given: sum(jnp.mean(x**2) for x in forward(*given))
    params = {k: at(x, found[k]) for k, x in model.params.items()}
    state = {k: at(x, P()) for k, x in model.state.items()}
    places = {k: x.sharding for k, x in params.items()}
    run = jax.jit(jax.grad(mean), out_shardings=places)
    return run.lower(params, state, [at(x, P()) for x in forward.arrays]).compile().as_text()


class Grouped(torch.nn.Module):
    """Experts under names that say nothing."""

    def __init__(self, batched):
        super().__init__()
        self.up = torch.nn.Parameter(torch.randn(8, 16, 32))
        self.down = torch.nn.Parameter(torch.randn(8, 16, 32))
        self.rest = torch.nn.Parameter(torch.randn(8, 16, 16))
        self.batched = batched

    def forward(self, x):
        x = x @ self.rest.sum(0)
        if self.batched:
            rows = x.unflatten(0, (8, 4))
            return ((rows @ self.up).relu() @ self.down.transpose(1, 2)).flatten(0, 1)
        ends = torch.arange(4, 36, 4, dtype=torch.int32)
        rows = torch.nn.functional.grouped_mm(x, self.up, offs=ends).relu()
        return torch.nn.functional.grouped_mm(rows, self.down.transpose(1, 2), offs=ends)


@pytest.mark.parametrize("batched", [False, True])
def test_experts_by_what_they_do(batched):
    model = anyjax.from_torch(Grouped(batched))
    x = np.random.default_rng(0).standard_normal((32, 16), np.float32)
    there = shard(model, mesh(dict(expert=8)), "expert", x)
    divided = [k for k, v in there.params.items() if v.sharding.spec[:1] == ("expert",)]
    assert divided == ["up", "down"]
    assert_close(there(x), model(x), reduction=256)


def test_an_axis_for_experts_is_asked_for():
    with pytest.raises(WrongArguments, match="no axis for expert"):
        shard(build("mixtral"), mesh(dict(model=8)), "tp+expert")


@pytest.mark.parametrize("axes", [dict(data=8), dict(data=2, ep=4)], ids="-".join)
def test_many_rows_stay_where_they_are(axes):
    """No device sorts or multiplies the rows of all, where these are more than the weights."""
    model, there = build("mixtral"), mesh(axes)
    shape = 16, 512
    ids = np.zeros(shape, np.int32)
    rows, choices = ids.size, 2
    text = compile_forward(
        Forward.of(model, (ids,), {"use_cache": False}), there, specs(model, there, "fsdp")
    ).as_text()
    sorted_rows = [int(n) for n in re.findall(r"= \(\w+\[(\d+)\]\S*, \S+ sort\(", text)]
    assert sorted_rows and max(sorted_rows) == rows * choices // there.shape["data"]
