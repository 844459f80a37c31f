"""Key-value caches whose leaves are all arrays, positions included, answering transformers' cache
protocol.

``fit`` takes the cache that transformers would use for a model and gives every layer that grows a
fixed length. States that never grow (convolutions, recurrences) stay in transformers' own layers,
and what a model brings for itself is left as it is: whether it keeps one shape shows when the
decoding loop is traced.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import torch
from transformers import cache_utils as theirs
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticLayer

from tojax.hf.generation.request.private import LinearAttentionLayer, cache_layers
from tojax.torch import lowers
from tojax.trees import Static

INDEXED = cache_layers("DynamicIndexedLayer")
HYBRID = cache_layers(
    "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer"
)
EMPTY = cache_layers("DummyLayer")


class Layer(StaticLayer):
    """Keys and values of one layer, ``[batch, heads, length, width]``, and how many positions are
    filled.

    Where there is one row or one head they are held as ``[batch * heads, length, width]``: XLA:CPU
    leaves axes of one element out of products, and would copy the whole cache at every step from
    one form to the other. Sliding windows keep all positions, too: the mask hides what is outside,
    and nothing depends on a Python counter.
    """

    cumulative_length: torch.Tensor

    def __init__(self, length: int, sliding: bool = False):
        super().__init__(max_cache_len=length)
        self.is_sliding = sliding

    @property
    def keys(self):
        """``[batch, heads, length, width]``, None before the first update."""
        return self._whole(self.held_keys)

    @keys.setter
    def keys(self, value):
        self.held_keys = _merged(value)

    @property
    def values(self):
        """As ``keys``."""
        return self._whole(self.held_values)

    @values.setter
    def values(self, value):
        self.held_values = _merged(value)

    def _whole(self, held):
        if held is None or held.dim() == 4:
            return held
        return held.unflatten(0, (self.batch_size, self.num_heads))

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Writes the new positions behind the filled ones; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        at, count = self.cumulative_length, key_states.shape[-2]
        self.cumulative_length = at + count
        self.held_keys = write(self.held_keys, _merged(key_states), -2, at)
        self.held_values = write(self.held_values, _merged(value_states), -2, at)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """The rows that beam search goes on with."""
        if self.is_initialized:
            self.keys = self.keys.index_select(0, beam_idx)
            self.values = self.values.index_select(0, beam_idx)


def _merged(value: torch.Tensor | None) -> torch.Tensor | None:
    return value.flatten(0, 1) if value is not None and 1 in value.shape[:2] else value


class IndexedLayer(Layer):
    """A layer whose keys are chosen by an indexer with keys of its own, ``[batch, length, width]``.

    (DeepSeek's sparse attention.)
    """

    def __init__(self, length: int):
        super().__init__(length)
        self.indexer_keys: Any = None
        self.indexer_position_ids: Any = None
        self.indexer_cumulative_length = torch.tensor(0)
        self.is_indexer_initialized = False

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        """Writes the indexer's new keys behind the filled ones; returns all of them."""
        if not self.is_indexer_initialized:
            batch, _, width = indexer_key_states.shape
            self.indexer_keys = indexer_key_states.new_zeros((batch, self.max_cache_len, width))
            self.is_indexer_initialized = True
        at = self.indexer_cumulative_length
        self.indexer_cumulative_length = at + indexer_key_states.shape[1]
        self.indexer_keys = write(self.indexer_keys, indexer_key_states, 1, at)
        return self.indexer_keys

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """The rows that beam search goes on with."""
        super().reorder_cache(beam_idx)
        if self.is_indexer_initialized:
            self.indexer_keys = self.indexer_keys.index_select(0, beam_idx)
        if self.indexer_position_ids is not None:
            self.indexer_position_ids = self.indexer_position_ids.index_select(1, beam_idx)


class HybridLayer(LinearAttentionLayer, Layer):
    """A layer with attention beside a recurrence."""

    def __init__(self, length: int, sliding: bool = False, number_of_states: int = 1):
        Layer.__init__(self, length, sliding)
        LinearAttentionLayer.__init__(self, number_of_states=number_of_states)

    def lazy_initialization(self, *args, **kwargs) -> None:
        """Keys and values come by position, states by name."""
        owner: Any = Layer if args else LinearAttentionLayer
        owner.lazy_initialization(self, *args, **kwargs)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """The rows that beam search goes on with."""
        LinearAttentionLayer.reorder_cache(self, beam_idx)
        Layer.reorder_cache(self, beam_idx)


class CrossLayer(Layer):
    """Keys and values of an encoder's output, written once."""

    def __init__(self):
        super().__init__(length=0)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Keeps both as they are."""
        self.max_cache_len = key_states.shape[-2]
        self.lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states, value_states
        self.cumulative_length = torch.tensor(self.max_cache_len)
        return key_states, value_states


torch.library.define("tojax::write", "(Tensor buffer, Tensor new, int axis, Tensor at) -> Tensor")


@lowers(torch.ops.tojax.write)
def _write(buffer, new, axis, at):
    """One slice that XLA updates in place, where ``index_copy`` is a scatter."""
    return jax.lax.dynamic_update_slice_in_dim(buffer, new, at, axis)


def write(buffer: torch.Tensor, new: torch.Tensor, axis: int, at: torch.Tensor) -> torch.Tensor:
    """``buffer`` with ``new`` from position ``at`` on."""
    return torch.ops.tojax.write(buffer, new.to(buffer.dtype), axis, at)


def fit(cache: Any, length: int) -> Any:
    """transformers' cache for a model with layers of ``length`` positions instead of growing ones.

    What is no ``Cache``, and layers of a kind that is not known here, are returned as they are.
    """
    if isinstance(cache, EncoderDecoderCache):
        fit(cache.self_attention_cache, length)
        own = cache.cross_attention_cache
        own.layers = [CrossLayer() for _ in own.layers]
        own.layer_class_to_replicate = CrossLayer if not own.layers else None
    elif isinstance(cache, Cache):
        cache.layers = [_fit_layer(layer, length) for layer in cache.layers]
        if cache.layer_class_to_replicate is theirs.DynamicLayer:
            cache.layer_class_to_replicate = _growing(length)
    return cache


@lru_cache(None)
def _growing(length: int):
    return partial(Layer, length)


def _fit_layer(layer: Any, length: int) -> Any:
    kind = type(layer)
    sliding = getattr(layer, "is_sliding", False)
    if kind in (theirs.DynamicLayer, theirs.DynamicSlidingWindowLayer):
        return Layer(length, sliding)
    if kind in INDEXED:
        return IndexedLayer(length)
    if kind in HYBRID:
        return HybridLayer(length, sliding, layer.number_of_states)
    return layer


def layers(tree: Any) -> list[Any]:
    """All layers of the caches in a tree of model arguments, and what is in no layer."""
    is_cache = lambda x: isinstance(x, Cache)
    found: list[Any] = []
    for leaf in jax.tree.leaves(tree, is_leaf=is_cache):
        if isinstance(leaf, EncoderDecoderCache):
            found += [*leaf.self_attention_cache.layers, *leaf.cross_attention_cache.layers]
        elif type(leaf) in (Cache, theirs.DynamicCache):
            found += leaf.layers
        else:
            found.append(leaf)
    return [x.value if isinstance(x, Static) else x for x in found]


def rewindable(tree: Any) -> bool:
    """Whether everything cached is keys and values by position, so that later ones can be forgotten
    by moving the position back.
    """
    found = [x for x in layers(tree) if not isinstance(x, (CrossLayer, *EMPTY))]
    return bool(found) and all(type(x) in (Layer, IndexedLayer) for x in found)


def rewind(tree: Any, filled: Any) -> Any:
    """The caches with ``filled`` positions; what is behind them is overwritten next."""
    for layer in layers(tree):
        if type(layer) in (Layer, IndexedLayer) and layer.is_initialized:
            layer.cumulative_length = filled
        if type(layer) is IndexedLayer and layer.is_indexer_initialized:
            layer.indexer_cumulative_length = filled
    return tree
