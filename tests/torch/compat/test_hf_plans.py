"""What transformers' models say about themselves."""

import numpy as np
import torch
import transformers

import anyjax
from anyjax.torch.compat.hf_plans import examples, own_plan
from tests.parallel.architectures import build


def test_plans():
    llama, _ = build("llama")
    assert own_plan(llama)["model.layers.*.mlp.down_proj"] == "rowwise"
    assert not own_plan(build("gpt2")[0]) and not own_plan(torch.nn.Linear(2, 2))


def test_tied_weights_have_all_their_names():
    module, _ = build("llama")
    module.lm_head.weight = module.model.embed_tokens.weight
    _, paths = anyjax.from_torch(module).source.own_plan()
    assert paths["model.embed_tokens.weight"] == ["model.embed_tokens.weight", "lm_head.weight"]


def test_examples_run():
    for name in ("llama", "t5", "vit"):
        model = anyjax.from_torch(build(name)[0])
        (args, kwargs, rng), *_ = model.source.examples()
        assert np.isfinite(model(*args, rng=rng, **kwargs).logits).all()
    assert not examples(torch.nn.Linear(2, 2))
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    sound = transformers.Wav2Vec2Config(**sizes, conv_dim=[8] * 7)
    assert not examples(transformers.Wav2Vec2Model(sound))
