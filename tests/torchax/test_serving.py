"""A decoding step as servers of torch models on TPUs write it: ``functional_call`` inside of a jit
of one's own, caches that are donated and written through views, on a mesh of eight devices.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from anyjax import torchax
from anyjax.torchax.interop import jax_view, torch_view
from anyjax.torchax.ops.mappings import TORCH_DTYPE_TO_JAX, t2j

transformers = pytest.importorskip("transformers")

# Servers call forward by its names of today; transformers 5.24 gives one another name.
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")

BATCH, LENGTH, STEPS = 2, 16, 4
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8,
    "max_position_embeddings": LENGTH, "attention_dropout": 0.0,
}  # fmt: skip
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
    ),
}  # fmt: skip


class Caches(transformers.Cache):
    """Keys and values of all layers, which lie in arrays of the runner."""

    def __init__(self, arrays: list[torch.Tensor], positions: torch.Tensor):
        self.arrays, self.positions, self.layers = arrays, positions, []

    def update(self, keys, values, layer, *args, **kwargs):
        of_keys, of_values = self.arrays[layer].unbind(0)  # views
        of_keys.index_copy_(2, self.positions, keys)
        of_values[:, :, self.positions] = values
        return self.arrays[layer][0], self.arrays[layer][1]

    def get_seq_length(self, layer: int = 0) -> int:
        return LENGTH


class Runner(torch.nn.Module):
    """Hidden states or logits, by its arguments."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **kwargs):
        if "hidden_states" in kwargs:
            return self.model.lm_head(kwargs["hidden_states"])
        positions = kwargs["positions"]
        columns = torch.arange(LENGTH, device=positions.device)
        mask = (columns[None] <= positions[:, None])[None, None]
        return self.model.model(
            input_ids=kwargs["input_ids"], attention_mask=mask, position_ids=positions[None],
            past_key_values=kwargs["caches"], use_cache=True,
        ).last_hidden_state  # fmt: skip


def sharded(model: torch.nn.Module, mesh: Mesh) -> dict[str, jax.Array]:
    """Moves parameters and buffers, each divided where its rows are as many as the devices."""
    weights = {}
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        assert x.dtype in TORCH_DTYPE_TO_JAX
        spec = P("model") if x.dim() and x.shape[0] % mesh.size == 0 else P()
        weights[name] = jax.device_put(t2j(x), NamedSharding(mesh, spec))
    assert all(isinstance(x, torchax.tensor.Tensor) for x in torch_view(weights).values())
    return weights


def made(kind: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = CONFIGS[kind]()
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    if kind == "qwen3_moe":
        config._experts_implementation = "batched_mm"
    return model.eval()


@pytest.mark.parametrize("kind", CONFIGS)
def test_decoding(kind):
    model = made(kind)
    prompt = torch.randint(0, 64, (BATCH, 5))
    mesh = jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    runner = Runner(model)
    weights = sharded(runner, mesh)
    of_cache = NamedSharding(mesh, P(None, None, None, None, "model"))
    shape = 2, BATCH, SIZES["num_key_value_heads"], LENGTH, SIZES["head_dim"]
    make = jax.jit(lambda: [jnp.zeros(shape) for _ in range(2)], out_shardings=of_cache)
    traces = []

    @functools.partial(jax.jit, donate_argnames=("caches",))
    def step(weights, caches, input_ids, positions):
        traces.append(1)
        with torchax.default_env():
            tensors = torch_view(caches)
            hidden = torch.func.functional_call(
                runner, torch_view(weights),
                kwargs={
                    "input_ids": torch_view(input_ids), "positions": torch_view(positions),
                    "caches": Caches(tensors, torch_view(positions)),
                }, tie_weights=False,
            )  # fmt: skip
            return jax_view(tensors), jax_view(hidden)

    @functools.partial(jax.jit, out_shardings=NamedSharding(mesh, P(None, None, "model")))
    def logits_of(weights, hidden):
        with torchax.default_env():
            kwargs = {"hidden_states": torch_view(hidden)}
            return jax_view(torch.func.functional_call(runner, torch_view(weights), kwargs=kwargs))

    caches, tokens = make(), prompt.numpy()
    positions = np.arange(tokens.shape[1])
    ids = prompt
    for _ in range(STEPS):
        before = caches
        caches, hidden = step(weights, before, jnp.asarray(tokens), jnp.asarray(positions))
        assert all(x.is_deleted() for x in before)  # donated
        logits = logits_of(weights, hidden)
        with torch.no_grad():
            expected = model(ids).logits[:, -1]
        np.testing.assert_allclose(logits[:, -1], expected, atol=2e-5)
        tokens = np.array(logits[:, -1].argmax(-1))[:, None]
        ids = torch.cat([ids, torch.from_numpy(tokens)], 1)
        positions = positions[-1:] + 1
    assert len(traces) == 2  # the prompt, and one token
    assert caches[0].sharding.is_equivalent_to(of_cache, 5)
    assert all(type(x.data) is torch.Tensor for x in model.parameters())  # no tracer stays behind
