"""Every private name of transformers that generation uses; see ``tojax.torch.core.private``."""

from __future__ import annotations

from tojax.private_names import need, target

GENERATE = "tojax.generate"
METHODS = """_prepare_generation_config _validate_model_kwargs _prepare_model_inputs
_prepare_special_tokens _prepare_decoder_input_ids_for_generation _prepare_generated_length
_validate_generated_length _get_logits_processor _prepare_attention_mask_for_generation
_prepare_position_ids_for_generation _prepare_cache_for_generation
_update_model_kwargs_for_generation _maybe_prepare_encoder_kwargs_for_generation"""
for _name in METHODS.split():
    need(f"transformers.generation.utils:GenerationMixin.{_name}", GENERATE)
need("transformers.modeling_utils:PreTrainedModel._can_compile_fullgraph", GENERATE)
CACHES = need("transformers.generation.utils:ALL_CACHE_NAMES", GENERATE)
CACHE = CACHES[0]  # past_key_values until transformers 5.24, where it is cache
PROMPT_ONLY = need(
    "transformers.generation.utils:MULTIMODAL_INPUTS_TO_DROP_OUTSIDE_PREFILL", "pictures and sounds"
)
MASKS = need("transformers.masking_utils:LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING", "sliding windows")
GROUPED = target("transformers.integrations.sdpa_attention", "use_gqa_in_sdpa", "grouped heads")
_ = GROUPED.place

# Attributes of objects.
ATTRIBUTES = {
    **dict.fromkeys(METHODS.split(), GENERATE),
    "_can_compile_fullgraph": "which models keep their states in fixed shapes",
    "_decoder_start_token_tensor": GENERATE,
    "_eos_token_tensor": GENERATE,
    "_pad_token_tensor": GENERATE,
    "_reorder_cache": "beam search",
}
