"""transformers' experts in parts of a mesh; tests/parallel/test_experts.py has whole models."""

import jax
import numpy as np
import pytest
import torch
import transformers

import anyjax
from tests.tolerance import assert_close


class Block(torch.nn.Module):
    """A block of GPT-OSS, whose experts have biases, or of Mixtral."""

    def __init__(self, kind):
        super().__init__()
        sizes = dict(hidden_size=16, intermediate_size=24, num_local_experts=4)
        torch.manual_seed(0)
        name = f"transformers.models.{kind}.modeling_{kind}"
        modeling = __import__(name, fromlist=["Experts"])
        names = {"gpt_oss": ("GptOssConfig", "GptOssExperts"),
                 "mixtral": ("MixtralConfig", "MixtralExperts")}  # fmt: skip
        config, experts = names[kind]
        config = getattr(transformers, config)(**sizes, num_experts_per_tok=2)
        config._experts_implementation = "grouped_mm"
        self.experts = getattr(modeling, experts)(config)
        for parameter in self.experts.parameters():
            torch.nn.init.normal_(parameter, std=0.3)

    def forward(self, x, index, weights):
        return self.experts(x, index, weights)


def arguments(rows=256):
    random = np.random.default_rng(0)
    index = np.argsort(random.normal(size=(rows, 4)), -1)[:, :2].astype(np.int32)
    weights = random.random((rows, 2)).astype(np.float32)
    return random.normal(size=(rows, 16)).astype(np.float32), index, weights


@pytest.mark.parametrize("axes", [dict(data=4), dict(expert=4), dict(data=2, ep=2)], ids="-".join)
@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss"])
def test_parts_are_the_whole(kind, axes):
    model = anyjax.from_torch(Block(kind).eval())
    given = arguments()
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), devices=jax.devices()[:4])
    there = anyjax.parallel.shard(model, mesh, "fsdp" if "data" in axes else {})
    placed = anyjax.parallel.place(given, mesh)
    loss = lambda params, args: (model.apply(params, *args) ** 2).mean()
    text = str(jax.make_jaxpr(jax.jit(loss))(there.params, placed))
    assert "shard_map" in text
    assert_close(there(*placed), model(*given), reduction=256)
    want, found = (
        jax.jit(jax.grad(loss))(x.params, args) for x, args in ((model, given), (there, placed))
    )
    for name, gradient in want.items():
        assert_close(found[name], gradient, reduction=1024, scale=float(abs(gradient).max()))
    assert model.source.module.experts.num_experts == 4  # as it was


def test_few_rows_stay_with_xla():
    """Where weights are more than rows, these move."""
    model = anyjax.from_torch(Block("mixtral").eval())
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    there = anyjax.parallel.shard(model, mesh, "fsdp")
    placed = anyjax.parallel.place(arguments(rows=8), mesh)
    assert "shard_map" not in str(jax.make_jaxpr(jax.jit(model.apply))(there.params, *placed))
    assert_close(there(*placed), model(*arguments(rows=8)), reduction=256)
