"""Every private name of transformers that generation uses; see ``anyjax.torch.core.private``."""

from __future__ import annotations

from inspect import signature
from typing import Any

from transformers import GenerationConfig, PreTrainedModel, cache_utils

from anyjax.private_names import need

GENERATE = "anyjax.generate, which transformers 5.8 is the first for"
METHODS = """_prepare_generation_config _validate_model_kwargs _prepare_model_inputs
_prepare_special_tokens _prepare_decoder_input_ids_for_generation _prepare_generated_length
_validate_generated_length _get_logits_processor _prepare_attention_mask_for_generation
_prepare_position_ids_for_generation _prepare_cache_for_generation
_update_model_kwargs_for_generation"""
for _name in METHODS.split():
    need(f"transformers.generation.utils:GenerationMixin.{_name}", GENERATE)
_mixin = need("transformers.generation.utils:GenerationMixin", GENERATE)
_BEFORE = "_prepare_encoder_decoder_kwargs_for_generation"  # transformers 5.20
ENCODE = _BEFORE if hasattr(_mixin, _BEFORE) else "_maybe_prepare_encoder_kwargs_for_generation"
need(f"transformers.generation.utils:GenerationMixin.{ENCODE}", "encoder-decoder models")
need("transformers.modeling_utils:PreTrainedModel._can_compile_fullgraph", GENERATE)
CACHES = need("transformers.generation.utils:ALL_CACHE_NAMES", GENERATE)
CACHE = CACHES[0]  # past_key_values until transformers 5.24, where it is cache
# Models drop these themselves until transformers 5.15.
PROMPT_ONLY = getattr(
    need("transformers.generation:utils", GENERATE), "MULTIMODAL_INPUTS_TO_DROP_OUTSIDE_PREFILL", ()
)
MASKS = need("transformers.masking_utils:LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING", "sliding windows")


def prepare_special_tokens(
    module: PreTrainedModel, settings: GenerationConfig, masked: bool, rows: int
) -> None:
    """Sets the special tokens as tensors; transformers takes the number of rows since 5.13."""
    prepare = module._prepare_special_tokens
    count = {"batch_size": rows} if "batch_size" in signature(prepare).parameters else {}
    prepare(settings, masked, device="cpu", **count)


def cache_layers(*names: str) -> tuple[type, ...]:
    """Returns the classes of cache layers of these names that the installed version has."""
    return tuple(getattr(cache_utils, name) for name in names if hasattr(cache_utils, name))


LinearAttentionLayer: Any = need("transformers.cache_utils:LinearAttentionLayer", GENERATE)

# Attributes of objects.
ATTRIBUTES = {
    **dict.fromkeys([*METHODS.split(), ENCODE], GENERATE),
    "_can_compile_fullgraph": "which models keep their states in fixed shapes",
    "_decoder_start_token_tensor": GENERATE,
    "_eos_token_tensor": GENERATE,
    "_pad_token_tensor": GENERATE,
    "_reorder_cache": "beam search",
}
