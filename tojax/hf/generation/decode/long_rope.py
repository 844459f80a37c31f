"""Models that read their whole text anew at one length, where their rotary frequencies change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from transformers import DynamicCache

from tojax.errors import Unsupported
from tojax.hf.generation.request import private
from tojax.hf.loading.module import quiet

Go = Callable[[dict[str, Any], int], dict[str, Any]]


class Full(DynamicCache):
    """Says that it holds so many positions."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def __len__(self) -> int:
        return 1

    def get_seq_length(self, *args) -> int:
        return self.count


def renewed_at(module: Any, length: int, last: int) -> int | None:
    """The length at which the model's own code drops its cache in a text that grows from ``length``
    to ``last``, None for never.

    Raises:
      Unsupported: it drops the text with it.
    """
    switch = getattr(module.config, "original_max_position_embeddings", None)
    if not isinstance(switch, int) or not length <= switch < last - 1:
        return None
    ids = torch.zeros(1, switch + 1, dtype=torch.int64)
    along: dict[str, Any] = {"attention_mask": ids + 1}
    along |= {"position_ids": torch.arange(switch + 1)[None]}
    along |= {private.CACHE: Full(switch)}
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


def refuse(module: Any, what: str, do: str) -> NoReturn:
    """Raises Unsupported for what keeps a cache of its own."""
    raise Unsupported(
        f"{what} with {type(module).__name__}",
        why="its cache is made anew within this text, where its rotary frequencies change",
        do=do,
    )


def interrupted(job: Any, plan: Any, go: Go) -> Go:
    """``go``, with a new cache from where ``job.renewal`` says."""

    def run(carry: dict[str, Any], until: int) -> dict[str, Any]:
        if int(carry["at"]) < job.renewal:
            carry = go(carry, min(until, job.renewal))
        if int(carry["at"]) == job.renewal < until and not bool(carry["done"].all()):
            carry.pop("state")
            carry = job.prefill(plan, carry=carry)[2]
        return go(carry, until)

    return run
