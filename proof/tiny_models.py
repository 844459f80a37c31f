"""Tiny random models of transformers' types, built from their own configs with small sizes.

A config is read as a dictionary, and every number in it whose name says what it measures is made
small: widths, heads, layers, vocabularies, images. Several variants are tried, from small to the
config as it is, because some sizes depend on each other in ways that only the model's code knows.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sys
from collections.abc import Iterator

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

VOCABULARY = 160
MOST_PARAMETERS = 20_000_000

# The auto classes whose class stands for a type, best first; the base model comes last.
HEADS = [
    "CAUSAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "MASKED_LM",
    "IMAGE_CLASSIFICATION",
    "CTC",
    "AUDIO_CLASSIFICATION",
    "SPEECH_SEQ_2_SEQ",
    "VIDEO_CLASSIFICATION",
    "OBJECT_DETECTION",
    "ZERO_SHOT_OBJECT_DETECTION",
    "SEMANTIC_SEGMENTATION",
    "UNIVERSAL_SEGMENTATION",
    "INSTANCE_SEGMENTATION",
    "IMAGE_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
    "SEQUENCE_CLASSIFICATION",
    "TIME_SERIES_PREDICTION",
]


class NoTinyModel(Exception):
    """A type that cannot be built small, or that takes none of the inputs."""


def types() -> list[str]:
    """Returns the model types that transformers has a base model for."""
    return sorted(modeling_auto.MODEL_MAPPING_NAMES)


def main_class(model_type: str) -> type[PreTrainedModel]:
    """Returns the class that stands for a type.

    Raises:
      NoTinyModel: transformers names a class that it does not have.
    """
    try:
        return getattr(transformers, class_name(model_type))
    except AttributeError as error:
        raise NoTinyModel(f"transformers has no {class_name(model_type)}") from error


def class_name(model_type: str) -> str:
    """Returns the name of the class that stands for a type."""
    tables = [getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {}) for head in HEADS]
    tables.append(modeling_auto.MODEL_MAPPING_NAMES)
    name = next(table[model_type] for table in tables if model_type in table)
    return name if isinstance(name, str) else name[0]


# Names of sizes as regular expressions of whole names: what replaces the value, and what bounds it.
# The first that fits counts. h: width, d: width of a head, n: heads.
REPLACED = (
    (r"coordinate_size", lambda h, d, n: h // 8),
    (r"shape_size", lambda h, d, n: h // 4),
    (r"qk_(rope|nope)(_head)?_dim|(\w+_)?linear_((key|value)_)?head_dim", lambda h, d, n: d),
    (r"(qk|index)_head_dim", lambda h, d, n: 2 * d),
    (r"n_group|topk_group|num_expert_group|n_groups_moe", lambda h, d, n: 1),
)
WIDTHS = (
    r"(\w*_)?(hidden_(size|dim|channels)|d_model|model_dim|embed(ding)?_(dim|size)|emb_dim|n_embd)"
    r"|(\w*_)?(dim|width|d_embed|lru_width|attention_size|channels_?size)"
    r"|(\w*_)?(proj|projection|output|out)_(dim|size)|\w*(hidden_size|embed_dim|embd_pdim)"
)
INNER = (
    r"(\w*_)?(intermediate_sizes?|(ffn|inner|mlp)_dim|n_inner|d_ff|d_inner|dim_feedforward"
    r"|feedforward_dim|(ffn|mlp)_hidden_size)|\w*(ffn_dim|ffn_size|intermediate_size)"
)
LAYERS = (
    r"(?!num_feat_extract)(\w*num_hidden_layers\w*|(\w*_)?(n_layers?|num_blocks|n_blocks|depth"
    r"|layers))"
)
DEPTHS = r"(stage_|layer_)?depths|\w*num_blocks_per_stage|layers_per_block|encoder_blocks"
BOUNDED = (
    (r"rotary_dim", lambda h, d, n: d // 2),
    (r"(\w+_)?(head_dim|d_kv|head_size|kv_channels)|attention_key_size", lambda h, d, n: d),
    (r"\w*attention_head_size", lambda h, d, n: d),
    (r"\w*(lora_(rank|dim)|low_rank_dim)\w*", lambda h, d, n: 32),
    (r"\w*vocab_sizes?\w*", lambda h, d, n: VOCABULARY),
    (r"\w*codebook_size\w*", lambda h, d, n: 128),
    (r"(\w*_)?(num_(key_value|kv)_heads|n_head_kv)", lambda h, d, n: 2),
    (r"num_key_value_groups|multi_query_group_num", lambda h, d, n: 2),
    (LAYERS, lambda h, d, n: 2),
    (DEPTHS, lambda h, d, n: 1),
    (r"attn_layer_period", lambda h, d, n: 2),
    (r"attn_layer_offset", lambda h, d, n: 1),
    (r"mamba_(n|num)_heads", lambda h, d, n: 8),
    (r"(\w*_)?(num_heads?|n_heads?)|\w*attention_heads|linear_num_\w*heads", lambda h, d, n: n),
    (INNER, lambda h, d, n: h),
    (WIDTHS, lambda h, d, n: h),
    (r"\w*max_(position_embeddings|(source|target)_positions)", lambda h, d, n: 128),
    (r"\w*max_sequence_length|n_positions|n_ctx|max_seq_len", lambda h, d, n: 128),
    (r"(n_|num_|moe_)?((routed|local|num)_)?experts", lambda h, d, n: 4),
    (r"num_experts_per_tok\w*|moe_(top_?k|k)|top_k_experts", lambda h, d, n: 2),
    (r"num_selected_experts|n_shared_experts", lambda h, d, n: 2),
    (r"(\w*_)?(image_size|img_size|input_size)", lambda h, d, n: 32),
    (r"(\w*_)?patch_(size|stride)", lambda h, d, n: 8),
    (r"\w*sliding_window\w*|(attention_)?chunk_size", lambda h, d, n: 16),
    (r"num_(queries|query_tokens|object_queries)", lambda h, d, n: 8),
    (r"\w*(state_size|d_state)", lambda h, d, n: 8),
)
# Width, heads, the names that a variant leaves as they are, and those that it changes alone.
VARIANTS = (
    (64, 4, "", ""),
    (64, 4, r".*head_dim|kv_channels|d_kv", ""),
    (128, 4, "", ""),
    (64, 4, r".*(image_size|patch_size|input_size|patch_stride)", ""),
    (64, 4, rf"hidden_dim|layers|{DEPTHS}|.*(num_blocks|channels|patch_size|image_size).*", ""),
    (64, 4, "", rf"{LAYERS}|{DEPTHS}|.*(vocab_size|experts|intermediate_size|ffn_dim)|max_pos.*"),
    (64, 4, "", r".*(vocab_size|num_hidden_layers|(en|de)coder_layers)|n_layer"),
    (64, 4, "", r".*vocab_size"),
)
# Values for what a default config leaves open although its model needs it.
OPEN = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1}
OPEN |= {"topk_group": 1, "prediction_length": 8, "attn_layer_indices": [1]}
OPEN |= {"vocabulary_map": {"<image>": VOCABULARY - 10, "IMGIMGA": VOCABULARY - 11}}
# Numbers and widths of Mamba's heads, and what these are of the model's width.
MAMBA = (
    ("num_heads", "head_dim", "expand"),
    ("mamba_n_heads", "mamba_d_head", "mamba_expand"),
    ("n_mamba_heads", "mamba_headdim", "mamba_expand"),
)
# A backbone that needs no further package, in the place of one of timm.
BACKBONE = {"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 16, 32, 32]}
BACKBONE |= {"depths": [1] * 4, "out_features": [f"stage{i}" for i in range(1, 5)]}


def models(cls: type[PreTrainedModel]) -> Iterator[PreTrainedModel]:
    """Yields tiny models of a class, one for each variant that can be built.

    Raises:
      NoTinyModel: there is none.
    """
    errors: list[Exception] = []
    plain = cls.config_class().to_dict()
    has_sections = 'get("mrope_section"' in inspect.getsource(sys.modules[cls.__module__])
    configs: list[dict] = []
    count = 0
    for hidden, heads, skipped, chosen in VARIANTS:
        small = shrink(plain, (hidden, hidden // heads, heads), skipped, chosen)
        if has_sections:
            _add_sections(small)
        if small in configs:
            continue
        configs.append(small)
        for read in (cls.config_class.from_dict, lambda d: assign(cls.config_class(), d)):
            try:
                model = build(cls, read(small))
            except Exception as error:
                errors.append(error)
                continue
            count += 1
            yield model
            break
    if not count:
        raise NoTinyModel("no small config can be built") from next(iter(errors), None)


def shrink(plain: dict, sizes: tuple[int, int, int], skipped: str, chosen: str) -> dict:
    """Returns a config's dictionary with small numbers."""
    small: dict = dict(plain)
    lengths: dict[int, int] = {}  # of lists with an item per layer
    for key, value in plain.items():
        if isinstance(value, dict):
            small[key] = _shrink_part(key, value, sizes, skipped, chosen)
            continue
        numbers = value if isinstance(value, (list, tuple)) else [value]
        is_size = bool(numbers) and all(type(x) is int and x > 0 for x in numbers)
        ignored = (skipped and re.fullmatch(skipped, key)) or (
            chosen and not re.fullmatch(chosen, key)
        )
        if ignored or not is_size:
            continue
        reduced = [reduce(key, x, sizes) for x in numbers]
        if numbers is not value:
            small[key] = reduced[0]
            if re.search("layer|depth", key) and reduced[0] != value:
                lengths[value] = reduced[0]
        elif reduced != list(numbers):
            small[key] = type(value)(reduced)
        elif re.search("hidden_sizes|embed_dims?$|dims$|channels", key) and len(numbers) > 1:
            largest = max(64, *numbers)
            small[key] = type(value)(max(8, x * 64 // largest // 8 * 8) for x in numbers)
    _shorten(plain, small, lengths)
    if lengths:  # names of the layers of a backbone, which follow from their number
        for key in {"stage_names", "out_features", "out_indices"} & {*small}:
            del small[key]
    _agree(plain, small)
    small |= {k: v for k, v in OPEN.items() if k in plain and plain[k] is None}
    _move_tokens(small)
    return small


def reduce(name: str, value: int, sizes: tuple[int, int, int]) -> int:
    """Returns a small value for the size of this name."""
    for pattern, of in REPLACED:
        if re.fullmatch(pattern, name):
            return of(*sizes)
    for pattern, of in BOUNDED:
        if re.fullmatch(pattern, name):
            return min(value, of(*sizes))
    return value


def _shrink_part(key: str, part: dict, *how) -> dict:
    """Returns a config inside of a config, made small."""
    if part.get("model_type") == "timm_backbone":
        return BACKBONE
    if key in ("rope_parameters", "rope_scaling"):
        return _shrink_rope(part)
    return shrink(part, *how) if "model_type" in part or key.endswith("config") else part


def _shrink_rope(rope: dict) -> dict:
    """Returns rotary settings whose sections fit into half of a small head."""
    small = {k: _shrink_rope(v) if isinstance(v, dict) else v for k, v in rope.items()}
    if sections := len(rope.get("mrope_section") or ()):
        rest = 3 if sections < 4 else 2
        small["mrope_section"] = [8 - rest * (sections - 1), *[rest] * (sections - 1)]
    return small


def _add_sections(config: dict) -> None:
    """Adds sections of rotary angles that fit, where the model's own would be too wide."""
    for key, value in config.items():
        if key == "rope_parameters" and isinstance(value, dict):
            config[key] = {"mrope_section": [2, 3, 3]} | value
        elif isinstance(value, dict):
            _add_sections(value)


def _shorten(plain: dict, small: dict, lengths: dict[int, int]) -> None:
    """Cuts lists with an item per layer to the layers there are, one of each kind first."""
    for key, value in plain.items():
        if isinstance(value, (list, tuple)) and len(value) in lengths:
            if not re.search("layer|_types?$|pattern|no_rope", key):
                continue
            kinds = [x for i, x in enumerate(value) if x not in value[:i]]
            items = [*kinds, *value] if len(kinds) > 1 else value
            small[key] = type(value)(items[: lengths[len(value)]])
        elif isinstance(value, dict) and value and all(str(k).isdigit() for k in value) and lengths:
            count = min(lengths.values())
            small[key] = {k: v for k, v in value.items() if int(k) < count}


def _agree(plain: dict, small: dict) -> None:
    """Changes sizes that follow from others."""
    for groups, heads in (("num_key_value_heads", "num_attention_heads"),
                          ("num_kv_heads", "num_heads")):  # fmt: skip
        if groups in plain and heads in plain and plain[groups] in (None, plain[heads]):
            small[groups] = small[heads]
    width, heads = small.get("hidden_size"), small.get("num_attention_heads")
    if "head_dim" in plain and plain["head_dim"] is None and type(width) is type(heads) is int:
        small["head_dim"] = width // heads
    for heads, head, expansion in MAMBA:
        if {heads, head, expansion, "hidden_size"} <= set(plain) and width != plain["hidden_size"]:
            small[head] = width * small[expansion] // small[heads]
            if "mamba_d_ssm" in plain:
                small["mamba_d_ssm"] = small[heads] * small[head]
    if {"attention_hidden_size", "attention_head_dim"} <= set(plain):  # Zamba, which joins two
        heads = small["num_attention_heads"]
        small |= {"attention_hidden_size": 2 * width, "attention_head_dim": 2 * width // heads}
    if "block_types" in plain:  # a layer of each kind
        small["num_hidden_layers"] = len(plain["block_types"])
    if set(small.get("layer_types") or ()) == {"linear_attention"}:
        small["layer_types"] = [*small["layer_types"][:-1], "full_attention"]
    for groups in {"n_groups", "mamba_n_groups"} & set(plain):
        small[groups] = min(plain[groups], 4)
    if {"mamba_num_heads", "mamba_head_dim", "n_groups"} <= set(plain):
        small |= {"n_groups": 2, "mamba_head_dim": 16}


def _move_tokens(config: dict) -> None:
    """Puts special tokens beyond the vocabulary at its end."""
    size = config.get("vocab_size")
    end = min(size, VOCABULARY) if isinstance(size, int) else VOCABULARY
    places: dict[int, int] = {}
    place = lambda x: (
        places.setdefault(x, end - 1 - len(places)) if type(x) is int and x >= end else x
    )
    names = r"token_(id|index|ids)$|(^|_)(image|audio|video|vision)\w*_id$"
    for key, value in config.items():
        if re.search(names, key):
            is_list = isinstance(value, (list, tuple))
            config[key] = [place(x) for x in value] if is_list else place(value)


def parts(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """Returns a config and those right inside of it."""
    return [config, *(c for c in vars(config).values() if isinstance(c, PreTrainedConfig))]


def assign(config: PreTrainedConfig, values: dict) -> PreTrainedConfig:
    """Returns the config with these values as attributes, for classes that check dictionaries."""
    for key, value in values.items():
        part = getattr(config, key, None)
        if isinstance(part, PreTrainedConfig) and isinstance(value, dict):
            assign(part, value)
        elif key not in ("model_type", "transformers_version", "architectures"):
            with contextlib.suppress(Exception):
                setattr(config, key, value)
    return config


def build(cls: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """Returns a random model in evaluation mode, without a cache between calls.

    Raises:
      NoTinyModel: it has more than MOST_PARAMETERS.
    """
    for part in parts(config):
        if getattr(part, "use_cache", None):
            part.use_cache = False
    count = 0
    with contextlib.suppress(Exception), torch.device("meta"):
        count = sum(p.numel() for p in cls(config).parameters())
    if count > MOST_PARAMETERS:
        raise NoTinyModel(f"{count / 1e6:.0f} million parameters are not tiny")
    torch.manual_seed(0)
    return enlarge(cls(config).eval().float())


@torch.no_grad()
def enlarge(model: PreTrainedModel) -> PreTrainedModel:
    """Adds noise to the weights, so that no attention is uniform and no bias is zero."""
    torch.manual_seed(1)
    for module in model.modules():
        is_convolution = isinstance(module, torch.nn.modules.conv._ConvNd)
        for weight in module.parameters(recurse=False):
            if not weight.is_floating_point() or not weight.numel():
                continue
            summed = (
                weight[0].numel() if is_convolution else weight.shape[-1] if weight.dim() else 1
            )
            scale = 0.7 / math.sqrt(summed) if weight.dim() > 1 else 0.1
            weight.add_(scale * torch.randn_like(weight))
    return model
