"""The few functions of transformers that are replaced during a trace, where they are loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import torch

from anyjax.errors import DataDependent
from anyjax.private_names import Target
from anyjax.torch.compat.patches import mentions, replaces
from anyjax.torch.control_flow.branches import undivided
from anyjax.torch.control_flow.experts import in_parts
from anyjax.torch.core import private, sizes
from anyjax.torch.core.lifting import inner
from anyjax.torch.core.mask_limits import Limits, note
from anyjax.torch.core.tensor import JaxTensor, value_of


def _called(target: Target) -> Callable[[], bool]:
    """Returns the probe for a function that its own module calls."""
    return lambda: mentions(target.module, target.name)


def _asked() -> bool:
    """Returns whether models ask for their attention as they used to."""
    start, name = "transformers.models.", private.ATTENTION.name
    models = [k for k, m in [*sys.modules.items()] if k.startswith(start) and "modeling_" in k]
    with_functions = [k for k in models if hasattr(sys.modules[k], "ALL_ATTENTION_FUNCTIONS")]
    return not with_functions or any(mentions(k, name) for k in with_functions)


@replaces(private.EXPERTS, probe=_called(private.EXPERTS))
def get_interface(original, self, implementation, default):
    """Returns the loop over the experts that are hit, or the same as grouped products over all of
    them, which a mesh divides.
    """
    chosen = original(self, implementation, default)
    if chosen is self["grouped_mm"]:
        return in_parts(chosen)
    if chosen is not default:
        return chosen

    def forward(module, *args, **kwargs):
        try:
            with undivided():
                return default(module, *args, **kwargs)
        except DataDependent:
            return in_parts(self["grouped_mm"])(module, *args, **kwargs)

    return forward


@replaces(private.HIDDEN_STATES, probe=_called(private.HIDDEN_STATES))
def is_torchdynamo_compiling(original):
    """Told so, a model inside another one ends the recording of the outer one's hidden states."""
    return False


@replaces(private.IS_TRACING, probe=_called(private.IS_TRACING))
def is_tracing(original, *tensor):
    """Asked by ``torch_compilable_check``, which raises without its message and class if so."""
    return False


@replaces(private.PACKED, probe=_called(private.PACKED))
def find_packed_sequence_indices(original, position_ids):
    """Returns the text of each position, None where all are known to be of one text."""
    packed = original(position_ids)
    if packed is None or isinstance(inner(packed), JaxTensor) or bool(packed[:, -1].any()):
        return packed
    return None


def _grouped() -> None:
    heads, layer = torch.ones(1, 2, 1, 1), SimpleNamespace(num_key_value_groups=2)
    private.attention()["sdpa"](layer, heads, heads[:, :1], heads[:, :1], None)


@replaces(private.GROUPED, probe=_grouped)
def use_gqa_in_sdpa(original, *args):
    """Returns True: XLA needs no repeated keys for grouped heads, with a mask or without."""
    return True


@replaces(private.MASK_FUNCTION, probe=lambda: private.all_masks()["sdpa"])
def mask_function(original, self, key):
    """Masks that know what they show where a prompt has no padding: transformers makes none then,
    and a layer that is not causal by itself sees all of the prompt.
    """
    make = original(self, key)
    if key != "sdpa":
        return make

    def masked(*, kv_length, **given):
        mask = make(kv_length=kv_length, **given)
        padding, window = given.get("attention_mask"), given.get("local_size")
        if (positions := given.get("cache_position")) is None:
            q_length, first = given["q_length"], given.get("q_offset", 0)
        else:  # until transformers 5.4
            q_length, first = positions.shape[0], positions[0]
        several = sizes.limits(q_length)[1] > 1  # of one position it is the same
        may_skip = several and given.get("allow_is_causal_skip", True)
        may_skip = may_skip and (not window or kv_length < window)
        if mask is not None and padding is not None and may_skip:
            unpadded = padding[:, :q_length].bool().all() & (first == 0)
            mask.shown = unpadded & (torch.arange(kv_length) < q_length)
        traced = mask is not None and isinstance(inner(mask), JaxTensor)
        if traced and (limits := _limits(**given)) is not None:
            note(value_of(inner(mask)), limits)
        return mask

    return masked


def _limits(mask_function=None, attention_mask=None, use_vmap=False, **given):
    """Returns the limits of a mask that is made of these, None where it is made of more."""
    first = given.get("q_offset", 0), given.get("kv_offset", 0)
    window = _window(mask_function)
    if use_vmap or window is None or first[1] != 0 or not isinstance(first[0], int):
        return None
    columns = attention_mask
    if columns is not None:
        if columns.ndim != 2 or not isinstance(inner(columns), JaxTensor):
            return None
        columns = value_of(inner(columns))
    causal, width = window
    return Limits(causal, width, first[0], columns)


def _window(function: object) -> tuple[bool, int | None] | None:
    """Returns (whether the rows of a mask function are causal, their window), None where that is
    not known.
    """
    functions = private.mask_functions()
    if function is functions.causal_mask_function:
        return True, None
    if function is functions.bidirectional_mask_function:
        return False, None
    cells = [x.cell_contents for x in getattr(function, "__closure__", None) or ()]
    if len(cells) != 1 or not isinstance(cells[0], tuple) or len(cells[0]) != 2:
        return None
    overlay, causal = cells[0]  # those of and_masks
    of_window = getattr(overlay, "__qualname__", "").startswith("sliding_window_overlay.")
    if not of_window or causal is not functions.causal_mask_function:
        return None
    return True, overlay.__closure__[0].cell_contents


@replaces(private.ATTENTION, probe=lambda: _asked())
def attention_function(original, self, implementation, default):
    """Attention that shows a layer which is not causal what ``mask_function`` says."""
    attend = original(self, implementation, default)
    return attend if attend is default else showing(attend)


@replaces(private.ATTENTION_BY_NAME, probe=lambda: private.attention()["sdpa"])
def attention_by_name(original, self, implementation):
    """Returns the same, where models look their attention up."""
    return showing(original(self, implementation))


def showing(attend: Callable) -> Callable:
    """Returns the attention for a mask that knows what it shows."""

    def forward(module, query, key, value, attention_mask=None, **kwargs):
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        shown = getattr(attention_mask, "shown", None)
        if shown is not None and not causal:
            attention_mask = attention_mask | shown
        return attend(module, query, key, value, attention_mask, **kwargs)

    return forward
