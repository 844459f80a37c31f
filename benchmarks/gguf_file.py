"""A Llama written as llama.cpp writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

NAMES = {
    "embed_tokens": "token_embd",
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


def write(module: Any, file: Path, kind: str | None) -> None:
    """The module's matrices in blocks of this kind, such as "Q8_0", where those divide their rows;
    everything else, and all for None, as floats.
    """
    config, which = module.config, gguf.GGMLQuantizationType[kind or "F32"]
    block = gguf.GGML_QUANT_SIZES[which][0]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in module.named_parameters():
        values = parameter.detach().numpy()
        for key, count in heads.items():  # rotated pairs lie beside each other
            if key in name:
                pairs = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2)
                values = pairs.reshape(values.shape)
        layer = f"blk.{name.split('.')[2]}." if "layers" in name else ""
        own = next(ours for theirs, ours in NAMES.items() if theirs in name)
        if kind and values.ndim == 2 and values.shape[1] % block == 0:
            writer.add_tensor(f"{layer}{own}.weight", gguf.quantize(values, which), raw_dtype=which)
        else:
            writer.add_tensor(f"{layer}{own}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
