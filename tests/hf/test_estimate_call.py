"""Configs as calls: nothing is loaded."""

import json
from pathlib import Path

import jax
import pytest
import transformers as tf

from anyjax.errors import BadCheckpoint, WrongArguments, WrongValue
from anyjax.hf.estimate_call import abstract_model, checked_length, traced_call
from anyjax.parallel._estimate import estimate_traced, input_specs, mesh_for
from tests.parallel.running import folder


def test_a_model_larger_than_this_machine(tmp_path):
    """70 billion params of a Llama: bytes as by hand, not one array."""
    config = tf.LlamaConfig(
        hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64,
        num_key_value_heads=8, vocab_size=128256,
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    before = {*map(id, kept := jax.live_arrays())}  # kept: ids of others are new
    model = abstract_model(str(tmp_path), "bfloat16", "CausalLM")
    assert not {*map(id, jax.live_arrays())} - before
    del kept
    attention, mlp = 8192 * 8192 * 2 + 2 * 8192 * 1024, 3 * 8192 * 28672
    total = 80 * (attention + mlp + 2 * 8192) + 2 * 128256 * 8192 + 8192
    assert sum(x.size for x in model.params.values()) == total
    assert {str(x.dtype) for x in model.params.values()} == {"bfloat16"}


def test_the_cache_is_where_the_prefill_leaves_it():
    told = estimate_traced(traced_call(folder("llama"), "decode", 16, 64), "v6e-8", "tp")
    keys = 2 * 2 * 16 * 8 * 64 * 16 * 4  # two of two layers: rows, heads, positions, width
    assert told.memory["cache"] == pytest.approx(keys / 8, rel=0.02)
    assert told.tokens == 16


def test_a_step_is_divided_as_its_forward_pass():
    """A plan that is derived depends on the sizes of a call: both are looked at with the same."""
    found, mesh = [], mesh_for("tp", 8)
    for what in ("forward", "train"):
        call = traced_call(folder("gpt2"), what, 16, 64)
        lies = zip(call.roles, input_specs(call, mesh, "tp"))
        found.append({role.name: place for role, place in lies if role.kind == "params"})
    assert found[0] == found[1]


def test_training_counts_the_optimizer_and_remat_saves_memory():
    plain = estimate_traced(traced_call(folder("llama"), "train", 16, 64), "v6e-8", "fsdp")
    again = estimate_traced(
        traced_call(folder("llama"), "train", 16, 64, remat=True), "v6e-8", "fsdp"
    )
    assert plain.memory["optimizer"] == pytest.approx(2 * plain.memory["params"], rel=0.01)
    assert again.temporaries < plain.temporaries
    assert sum(again.products.values()) > sum(plain.products.values())
    assert again.useful == plain.useful
    sgd = estimate_traced(
        traced_call(folder("llama"), "train", 16, 64, optimizer="sgd"), "v6e-8", "fsdp"
    )
    assert sgd.memory.get("optimizer", 0) == 0


def test_quantized_weights():
    told = estimate_traced(
        traced_call(folder("llama"), "forward", 16, 64, quantize="int8"), "v6e-8", "tp"
    )
    whole = estimate_traced(traced_call(folder("llama"), "forward", 16, 64), "v6e-8", "tp")
    held = lambda e: e.memory.get("params", 0) + e.memory["state"]
    assert held(told) < 0.6 * held(whole)
    assert told.weights == whole.weights and whole.notes == ()


def test_a_quantized_checkpoint_is_told(tmp_path):
    """Its own numbers are not in its config: floats are counted, and the table says so."""
    config = json.loads(Path(folder("llama"), "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "version": "gemm"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = estimate_traced(traced_call(str(tmp_path), batch=16, length=64), "v7x-8", "tp")
    assert "(awq) are counted as floats" in told.notes[0]
    assert told.notes[1].startswith("JAX has 2 devices in each v7x")
    assert all(note in str(told) for note in told.notes)
    small = traced_call(str(tmp_path), batch=16, length=64, quantize="int8")
    assert small.call.notes == ()


def test_mistakes(tmp_path):
    with pytest.raises(BadCheckpoint, match="no config"):
        abstract_model(str(tmp_path))
    with pytest.raises(WrongArguments, match="beyond the model's 256 positions"):
        traced_call(folder("gpt2"), length=257)
    with pytest.raises(WrongValue, match="optimizer"):
        traced_call(folder("gpt2"), "train", optimizer="adam4bit")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nothing"}))
    with pytest.raises(BadCheckpoint, match="does not know the model type"):
        abstract_model(str(tmp_path))


def test_a_model_without_a_last_position(tmp_path):
    config = tf.XLNetConfig(vocab_size=32, d_model=8, n_layer=1, n_head=2, d_inner=8)
    config.save_pretrained(tmp_path)
    checked_length(abstract_model(str(tmp_path)), 10**6)
