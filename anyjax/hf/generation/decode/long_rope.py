"""Models that read the whole text anew at one length, where their rotary frequencies change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from transformers import DynamicCache, PreTrainedModel

from anyjax.errors import Unsupported
from anyjax.hf.generation.request import private
from anyjax.hf.loading.decide import quiet
from anyjax.typing import PyTree

DecodeUntil = Callable[[dict[str, Any], int], dict[str, Any]]


class FilledCache(DynamicCache):
    """A cache that reports so many positions and holds none."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def __len__(self) -> int:
        return 1

    def get_seq_length(self, *args) -> int:
        return self.count


def renewed_at(module: PreTrainedModel, length: int, last: int) -> int | None:
    """Returns the length at which the model's own code drops its cache; None for never.

    The text grows from ``length`` to ``last``.

    Raises:
      Unsupported: the code drops the text as well.
    """
    switch = getattr(module.config, "original_max_position_embeddings", None)
    if not isinstance(switch, int) or not length <= switch < last - 1:
        return None
    ids = torch.zeros(1, switch + 1, dtype=torch.int64)
    along: dict[str, Any] = {"attention_mask": ids + 1}
    along |= {"position_ids": torch.arange(switch + 1)[None]}
    along |= {private.CACHE: FilledCache(switch)}
    with quiet():
        inputs = module.prepare_inputs_for_generation(
            ids, next_sequence_length=1, use_cache=True, **along
        )
    if inputs.get(private.CACHE) is not None:
        return None
    if inputs["input_ids"].shape == ids.shape:
        return switch + 1
    raise Unsupported(
        f"a text of {type(module).__name__} that grows beyond {switch} tokens",
        why="its code in transformers drops the cache there and goes on without the text before",
        do=f"end at {switch} tokens (max_new_tokens), give a longer prompt, or use_cache=False",
    )


def refuse_renewal(module: PreTrainedModel, feature: str, do: str) -> NoReturn:
    """Raises Unsupported for a feature with a cache of its own."""
    raise Unsupported(
        f"{feature} with {type(module).__name__}",
        why="its cache is made anew within this text, where its rotary frequencies change",
        do=do,
    )


def with_renewal(
    renewal: int, prefill: Callable[..., tuple], decode_until: DecodeUntil
) -> DecodeUntil:
    """Returns ``decode_until`` with a new cache from the length ``renewal`` on."""

    def decode_with_renewal(carry: dict[str, PyTree], until: int) -> dict[str, Any]:
        if int(carry["at"]) < renewal:
            carry = decode_until(carry, min(until, renewal))
        if int(carry["at"]) == renewal < until and not bool(carry["done"].all()):
            carry.pop("state")
            carry = prefill(carry=carry)[2]
        return decode_until(carry, until)

    return decode_with_renewal
