"""Planted faults: verify names the module that has them, and no other."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
import transformers

import anyjax

pytestmark = pytest.mark.sample(every=7)
IDS = np.random.default_rng(0).integers(3, 90, (2, 12))
MASK = np.ones_like(IDS)
SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 99,
}  # fmt: skip


def llama(layers=4, **options):
    config = transformers.LlamaConfig(
        **SIZES, num_hidden_layers=layers, num_key_value_heads=2, **options
    )
    return transformers.LlamaForCausalLM(config)


def gpt2():
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99)
    return transformers.GPT2LMHeadModel(config)


def bert():
    config = transformers.BertConfig(**SIZES, num_hidden_layers=2)
    return transformers.BertForMaskedLM(config)


def t5():
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99
    )
    return transformers.T5ForConditionalGeneration(config)


def vit():
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=2,
        image_size=16, patch_size=8,
    )  # fmt: skip
    return transformers.ViTModel(config)


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    return transformers.ResNetModel(config)


TEXT = {"input_ids": IDS, "use_cache": False}
INPUTS = {
    llama: TEXT,
    gpt2: TEXT,
    bert: {"input_ids": IDS, "attention_mask": MASK},
    t5: {"input_ids": IDS, "decoder_input_ids": IDS[:, :5], "use_cache": False},
    vit: {"pixel_values": np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)},
    resnet: {"pixel_values": np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)},
}


def wrong_epsilon(module):
    module.model.layers[19].post_attention_layernorm.variance_epsilon = 1e-5
    return "model.layers.19.post_attention_layernorm"


def swapped_weights(module):
    attention = module.model.layers[1].self_attn
    attention.k_proj, attention.v_proj = attention.v_proj, attention.k_proj
    return "model.layers.1.self_attn.k_proj"


def transposed_kernel(module):
    layer = module.vit.encoder.layer[1] if hasattr(module, "vit") else module.layers[1]
    query = layer.attention.attention.query if hasattr(layer.attention, "attention") else None
    query = query if query is not None else layer.attention.q_proj
    query.weight.data = query.weight.data.T.contiguous()
    return next(path for path, inner in module.named_modules() if inner is query)


def rope_base(module):
    rotary = module.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq**0.9
    return "model.rotary_emb"


def missing_bias(module):
    module.transformer.h[1].mlp.c_fc.bias.data.zero_()
    return "transformer.h.1.mlp.c_fc"


def attention_scale(module):
    module.model.layers[2].self_attn.scaling *= 1.01
    return "model.layers.2.self_attn"


def untied_weights(module):
    module.lm_head.weight = torch.nn.Parameter(module.lm_head.weight * 1.01)
    return "lm_head"


def form_of_gelu(module):
    module.bert.encoder.layer[1].intermediate.intermediate_act_fn = torch.nn.GELU("tanh")
    return "bert.encoder.layer.1.intermediate.intermediate_act_fn"


def dropped_residual(module):
    layer = module.transformer.h[1]
    forward = type(layer.mlp).forward

    class NoResidual(type(layer.mlp)):
        def forward(self, x):
            return forward(self, x) * 0

    layer.mlp.__class__ = NoResidual
    return "transformer.h.1.mlp"


def norm_in_the_wrong_place(module):
    block = module.encoder.block[1].layer[0]
    block.layer_norm, block.dropout = torch.nn.Identity(), block.dropout
    return "encoder.block.1.layer.0.layer_norm"


def cast_of_a_dtype(module):
    layer = module.model.layers[0].mlp.down_proj

    class Narrow(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x.to(torch.bfloat16).to(torch.float32))

    layer.__class__ = Narrow
    return "model.layers.0.mlp.down_proj"


def order_of_heads(module):
    weight = module.model.layers[3].self_attn.q_proj.weight
    weight.data = weight.data.reshape(4, 8, 32)[[1, 0, 2, 3]].reshape(32, 32)
    return "model.layers.3.self_attn.q_proj"


def statistics_of_batches(module):
    norm = module.encoder.stages[1].layers[0].layer[0].normalization
    norm.train()
    return next(path for path, inner in module.named_modules() if inner is norm)


def burnt_constant(module):
    embedding = module.embeddings
    table = embedding.position_embeddings.detach() * 1.001

    class Burnt(type(embedding)):
        @property
        def position_embeddings(self):
            return table

    del embedding._parameters["position_embeddings"]
    embedding.__class__ = Burnt
    return "embeddings"


def mask_off_by_one(module):
    attention = module.model.layers[1].self_attn

    class Early(type(attention)):
        def forward(self, hidden_states, attention_mask=None, **kwargs):
            length = hidden_states.shape[1]
            mask = torch.ones(length, length).tril(-1) + torch.eye(length) * (
                torch.arange(length) == 0
            )
            mask = torch.where(mask > 0, 0.0, torch.finfo(hidden_states.dtype).min)
            return super().forward(
                hidden_states=hidden_states, attention_mask=mask[None, None], **kwargs
            )

    attention.__class__ = Early
    return "model.layers.1.self_attn"


FAULTS: dict[str, tuple[Callable, Callable]] = {
    "a wrong epsilon in one of 24 layers": (lambda: llama(24), wrong_epsilon),
    "swapped weights": (lambda: llama(), swapped_weights),
    "a transposed square kernel": (vit, transposed_kernel),
    "the base of a rotary embedding": (lambda: llama(), rope_base),
    "a missing bias": (gpt2, missing_bias),
    "the scale of an attention": (lambda: llama(), attention_scale),
    "tied weights untied": (gpt2, untied_weights),
    "the form of GELU": (bert, form_of_gelu),
    "a dropped residual": (gpt2, dropped_residual),
    "a norm in the wrong place": (t5, norm_in_the_wrong_place),
    "a cast of a dtype": (lambda: llama(), cast_of_a_dtype),
    "the order of heads": (lambda: llama(), order_of_heads),
    "statistics of batches": (resnet, statistics_of_batches),
    "a constant burnt in": (vit, burnt_constant),
    "a mask off by one": (lambda: llama(attn_implementation="eager"), mask_off_by_one),
}


def inputs_of(module):
    return next(v for k, v in INPUTS.items() if k().__class__ is type(module))


def randomized(module):
    """Gives biases and norms values that tell them apart."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return module


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault):
    build, plant = FAULTS[fault]
    torch.manual_seed(0)
    healthy = randomized(build().eval())
    faulty = copy.deepcopy(healthy)
    path = plant(faulty)
    report = anyjax.verify(anyjax.from_torch(faulty), reference=healthy, **inputs_of(healthy))
    assert report.faults and report.faults[0].path == path, str(report)
    assert not anyjax.verify(anyjax.from_torch(healthy), **inputs_of(healthy)).faults
