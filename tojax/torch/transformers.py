"""The few functions of transformers that are replaced during a trace, where they are loaded."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from tojax.errors import DataDependent
from tojax.torch.tensor import JaxTensor, inner
from tojax.torch.ways import undivided


def get_interface(original, self, implementation, default):
    """The loop over the experts that are hit, or the same as grouped products over all of them."""
    chosen = original(self, implementation, default)
    if chosen is not default:
        return chosen

    def forward(module, *args, **kwargs):
        try:
            with undivided():
                return default(module, *args, **kwargs)
        except DataDependent:
            return self["grouped_mm"](module, *args, **kwargs)

    return forward


def is_torchdynamo_compiling(original):
    """Told so, a model inside another one ends the recording of the outer one's hidden states, and
    LongT5 and UDOP make no mask where they need one.
    """
    return False


def is_tracing(original, *tensor):
    """Asked by ``torch_compilable_check``, which raises without its message and class if so."""
    return False


def find_packed_sequence_indices(original, position_ids):
    """Which text each position belongs to; None where positions are known to be of one text."""
    packed = original(position_ids)
    if packed is None or isinstance(inner(packed), JaxTensor) or bool(packed[:, -1].any()):
        return packed
    return None


def mask_function(original, self, key):
    """Masks that know what they show where a prompt has no padding: transformers makes none then,
    and a layer that is not causal by itself sees all of the prompt.
    """
    make = original(self, key)
    if key != "sdpa":
        return make

    def masked(*, q_length, kv_length, **given):
        mask = make(q_length=q_length, kv_length=kv_length, **given)
        padding, window = given.get("attention_mask"), given.get("local_size") or math.inf
        may_skip = given.get("allow_is_causal_skip", True) and q_length > 1 and kv_length < window
        if mask is not None and padding is not None and may_skip:
            whole = padding[:, :q_length].bool().all() & (given.get("q_offset", 0) == 0)
            mask.shown = whole & (torch.arange(kv_length) < q_length)
        return mask

    return masked


def attention_function(original, self, implementation, default):
    """Attention that shows a layer which is not causal what ``mask_function`` says."""
    attend = original(self, implementation, default)

    def forward(module, query, key, value, attention_mask=None, **kwargs):
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        shown = getattr(attention_mask, "shown", None)
        if shown is not None and not causal:
            attention_mask = attention_mask | shown
        return attend(module, query, key, value, attention_mask, **kwargs)

    return attend if attend is default else forward


# module, the attribute that owns the function ("" for the module), function, replacement
REPLACED: list[tuple[str, str, str, Callable]] = [
    ("integrations.moe", "ExpertsInterface", "get_interface", get_interface),
    ("masking_utils", "AttentionMaskInterface", "__getitem__", mask_function),
    ("masking_utils", "", "find_packed_sequence_indices", find_packed_sequence_indices),
    ("modeling_utils", "AttentionInterface", "get_interface", attention_function),
    ("models.longt5.modeling_longt5", "", "is_torchdynamo_compiling", is_torchdynamo_compiling),
    ("models.udop.modeling_udop", "", "is_torchdynamo_compiling", is_torchdynamo_compiling),
    ("utils.import_utils", "", "is_tracing", is_tracing),
    ("utils.output_capturing", "", "is_torchdynamo_compiling", is_torchdynamo_compiling),
]


def patches() -> list[tuple[Any, str, Callable]]:
    """(owner, name, replacement) of those that are loaded."""
    modules = [sys.modules.get(f"transformers.{row[0]}") for row in REPLACED]
    return [
        (getattr(module, owner) if owner else module, name, replacement)
        for module, (_, owner, name, replacement) in zip(modules, REPLACED)
        if module
    ]
