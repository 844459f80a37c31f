"""GGUF files: a small Llama written as llama.cpp does, quantized and not, beside the module."""

import numpy as np
import pytest
import torch

import tojax
from tests.hf import tiny
from tests.tolerance import assert_close
from tojax.errors import BadCheckpoint

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
Q8 = gguf.GGMLQuantizationType.Q8_0


def name_of(name):
    for theirs, ours in NAMES.items():
        if theirs in name:
            layer = f"blk.{name.split('.')[2]}." if "layers" in name else ""
            return f"{layer}{ours}.weight"
    raise KeyError(name)


def interleaved(weight, heads):
    """llama.cpp's order of rows: rotated pairs lie beside each other."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write(module, file, quantized):
    """Writes the file and puts what rounding left into the module."""
    config = module.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    for name, parameter in module.named_parameters():
        values = parameter.detach().numpy()
        if quantized and values.ndim == 2 and values.shape[1] % 32 == 0:
            values = gguf.dequantize(gguf.quantize(values, Q8), Q8)
            assert not np.array_equal(values, parameter.detach().numpy())
            parameter.data = torch.from_numpy(values.copy())
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for kind, count in heads.items():
            values = interleaved(values, count) if kind in name else values
        if quantized and values.ndim == 2 and values.shape[1] % 32 == 0:
            writer.add_tensor(name_of(name), gguf.quantize(values, Q8), raw_dtype=Q8)
        else:
            writer.add_tensor(name_of(name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("quantized", [False, True])
def test_a_file_of_llama_cpp(quantized, tmp_path):
    module, inputs = tiny.build("llama")
    write(module, tmp_path / "tiny.gguf", quantized)
    model = tojax.from_pretrained(tmp_path / "tiny.gguf")
    assert type(model.source.module) is type(module)
    params = model.params
    if quantized:  # matrices stay as they are
        assert all(x.ndim == 1 or x.shape[1] % 32 for x in params.values())
        assert {form.scheme for form in model.source.packed} == {"int8"}
        params, _ = model.source.opened(params, model.state)
        floats = tojax.from_pretrained(tmp_path / "tiny.gguf", dequantize=True)
        assert_close(floats.params, params, rtol=0)
    assert_close(params, {k: v.detach() for k, v in module.named_parameters()}, rtol=1e-6)
    assert_close([model(**inputs).logits], [module(**inputs).logits.detach()], rtol=1e-4)

    half = tojax.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype="bfloat16")
    assert {str(v.dtype) for v in half.params.values()} == {"bfloat16"}
    model.save_pretrained(tmp_path / "hf")
    back = type(module).from_pretrained(tmp_path / "hf")
    assert_close([back(**inputs).logits.detach()], [module(**inputs).logits.detach()], rtol=1e-4)


def test_a_file_that_is_cut_off(tmp_path):
    file = tmp_path / "tiny.gguf"
    write(tiny.build("llama")[0], file, False)
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(BadCheckpoint):
        tojax.from_pretrained(file)


def test_files_that_are_none(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"there is no x\.gguf"):
        tojax.from_pretrained(tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(b"GGML")
    with pytest.raises(BadCheckpoint, match="no GGUF file"):
        tojax.from_pretrained(tmp_path, gguf_file="x.gguf")
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\0" * 10)
    with pytest.raises(BadCheckpoint, match="cannot read the config"):
        tojax.from_pretrained(tmp_path, gguf_file="x.gguf")
