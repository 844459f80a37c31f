"""A key-value cache whose leaves are all arrays, positions included, answering transformers' cache
protocol.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, StaticLayer

from tojax.errors import Unsupported

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention", "attention"}


class Layer(StaticLayer):
    """Keys and values of one layer, ``[batch, heads, length, width]``, and how many positions are
    filled.

    Sliding windows keep all positions, too: the mask hides what is outside, and nothing depends on
    a Python counter.
    """

    keys: torch.Tensor
    values: torch.Tensor
    cumulative_length: torch.Tensor

    def __init__(self, length: int, sliding: bool):
        super().__init__(max_cache_len=length)
        self.is_sliding = sliding

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Writes the new positions behind the filled ones; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        count = key_states.shape[-2]
        position = torch.arange(count) + self.cumulative_length
        self.cumulative_length = self.cumulative_length + count
        self.keys = self.keys.index_copy(2, position, key_states.to(self.keys.dtype))
        self.values = self.values.index_copy(2, position, value_states.to(self.values.dtype))
        return self.keys, self.values


def empty(config, length: int) -> Cache:
    """An empty cache of ``length`` positions for the model that ``config`` describes.

    Raises:
      Unsupported: a layer keeps something other than keys and values.
    """
    text = config.get_text_config(decoder=True)
    kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    if other := sorted(set(kinds) - ATTENTION):
        raise Unsupported(
            f"{text.model_type} has layers of kind {', '.join(other)}",
            why="tojax.generate caches keys and values of attention layers so far",
            do="generate with transformers, or write the loop around model.apply",
        )
    sliding = getattr(text, "sliding_window", None) is not None and not getattr(
        text, "layer_types", None
    )
    if hasattr(text, "use_sliding_window"):
        sliding = sliding and bool(text.use_sliding_window)
    return Cache(layers=[Layer(length, kind != "full_attention" or sliding) for kind in kinds])
