"""Tiny models of transformers' types: small numbers in configs, models, inputs that torch takes."""

import pytest

pytest.importorskip("transformers")

from proof import tiny_inputs, tiny_models

pytestmark = pytest.mark.sample(every=3)


def test_every_type_has_a_class():
    names = tiny_models.types()
    assert len(names) > 400 and names == sorted({*names})
    assert all(tiny_models.class_name(name) for name in names)
    assert tiny_models.main_class("llama").__name__ == "LlamaForCausalLM"
    assert tiny_models.main_class("vit").__name__ == "ViTForImageClassification"


def test_numbers_become_small():
    plain = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    plain |= {"num_key_value_heads": 8, "layer_types": ["a"] * 31 + ["b"], "bos_token_id": 128000}
    plain |= {"vocab_size": 128256, "tie_word_embeddings": False, "hidden_sizes": [96, 192, 768]}
    plain |= {"rope_parameters": {"mrope_section": [16, 24, 24]}, "head_dim": None}
    small = tiny_models.shrink(plain, (64, 16, 4), "", "")
    assert small["hidden_size"] == 64 and small["num_hidden_layers"] == 2
    assert small["layer_types"] == ["a", "b"] and small["num_key_value_heads"] == 2
    assert small["vocab_size"] == 160 and small["bos_token_id"] == 159
    assert small["tie_word_embeddings"] is False and small["hidden_sizes"] == [8, 16, 64]
    assert small["rope_parameters"] == {"mrope_section": [2, 3, 3]} and small["head_dim"] == 16


@pytest.mark.parametrize("name", ["llama", "t5", "clip", "wav2vec2", "qwen3_vl", "detr"])
def test_a_type(name):
    case = tiny_inputs.tiny(name)
    assert sum(p.numel() for p in case.model.parameters()) < 5_000_000
    assert case.outputs and not case.random and case.model.training is False
    again = tiny_inputs.call(case.model, case.inputs)
    assert all(x.equal(y) for x, y in zip(again, case.outputs, strict=True))


def test_a_type_that_cannot_be_built(monkeypatch):
    monkeypatch.setattr(tiny_models, "MOST_PARAMETERS", 10)
    with pytest.raises(tiny_models.NoTinyModel, match="no small config"):
        tiny_inputs.tiny("gpt2")


def test_a_class_that_is_only_a_name(monkeypatch):
    monkeypatch.setattr(tiny_models, "class_name", lambda model_type: "NoSuchModel")
    with pytest.raises(tiny_models.NoTinyModel, match="has no NoSuchModel"):
        tiny_models.main_class("gpt2")
