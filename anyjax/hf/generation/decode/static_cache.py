"""Key-value caches of fixed shape with transformers' cache protocol; all leaves are arrays.

``fit_cache`` takes the cache that transformers would use for a model, and gives every growing
layer a fixed length. States that never grow (convolutions, recurrences) stay in transformers' own
layers, and layers of a model's own are not changed: tracing the decoding loop shows whether they
keep their shape.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import torch
from transformers import cache_utils
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticLayer

from anyjax.hf.generation.request.private import LinearAttentionLayer, cache_layers
from anyjax.torch import lowers
from anyjax.trees import Static
from anyjax.typing import PyTree

INDEXED = cache_layers("DynamicIndexedLayer")
HYBRID = cache_layers(
    "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer"
)
EMPTY = cache_layers("DummyLayer")


class Layer(StaticLayer):
    """Keys and values of one layer, ``[batch, heads, length, width]``, and the filled positions.

    For one row or one head they are stored as ``[batch * heads, length, width]``: XLA:CPU drops
    axes of one element in products, and would copy the cache between both shapes at every step.
    Layers with sliding windows keep all positions, too: the mask hides those outside, and nothing
    depends on a Python counter.
    """

    cumulative_length: torch.Tensor

    def __init__(self, length: int, sliding: bool = False):
        super().__init__(max_cache_len=length)
        self.is_sliding = sliding

    @property
    def keys(self):
        """``[batch, heads, length, width]``, None before the first update."""
        return self._unmerged(self.merged_keys)

    @keys.setter
    def keys(self, value):
        self.merged_keys = _merged(value)

    @property
    def values(self):
        return self._unmerged(self.merged_values)

    @values.setter
    def values(self, value):
        self.merged_values = _merged(value)

    def _unmerged(self, merged):
        if merged is None or merged.dim() == 4:
            return merged
        return merged.unflatten(0, (self.batch_size, self.num_heads))

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Writes the new positions behind the filled ones; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        at, count = self.cumulative_length, key_states.shape[-2]
        self.cumulative_length = at + count
        self.merged_keys = write_positions(self.merged_keys, _merged(key_states), -2, at)
        self.merged_values = write_positions(self.merged_values, _merged(value_states), -2, at)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keeps the rows that beam search goes on with."""
        if self.is_initialized:
            self.keys = self.keys.index_select(0, beam_idx)
            self.values = self.values.index_select(0, beam_idx)


def _merged(value: torch.Tensor | None) -> torch.Tensor | None:
    return value.flatten(0, 1) if value is not None and 1 in value.shape[:2] else value


class IndexedLayer(Layer):
    """A layer of DeepSeek's sparse attention: an indexer with its own keys chooses keys.

    The indexer's keys are ``[batch, length, width]``.
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
        self.indexer_keys = write_positions(self.indexer_keys, indexer_key_states, 1, at)
        return self.indexer_keys

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keeps the rows that beam search goes on with."""
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
        """Initializes keys and values (positional arguments) or states (keywords)."""
        owner: Any = Layer if args else LinearAttentionLayer
        owner.lazy_initialization(self, *args, **kwargs)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keeps the rows that beam search goes on with."""
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


torch.library.define("anyjax::write", "(Tensor buffer, Tensor new, int axis, Tensor at) -> Tensor")


@lowers(torch.ops.anyjax.write)
def _write_lowering(buffer, new, axis, at):
    """Updates one slice, which XLA does in place; ``index_copy`` would be a scatter."""
    return jax.lax.dynamic_update_slice_in_dim(buffer, new, at, axis)


def write_positions(
    buffer: torch.Tensor, new: torch.Tensor, axis: int, at: torch.Tensor
) -> torch.Tensor:
    """Returns ``buffer`` with ``new`` from position ``at`` on."""
    return torch.ops.anyjax.write(buffer, new.to(buffer.dtype), axis, at)


def fit_cache(cache: object, length: int) -> Any:
    """Replaces the growing layers of transformers' cache by layers of ``length`` positions.

    Other objects than a ``Cache``, and layers of other classes, are returned unchanged.
    """
    if isinstance(cache, EncoderDecoderCache):
        fit_cache(cache.self_attention_cache, length)
        cross_cache = cache.cross_attention_cache
        cross_cache.layers = [CrossLayer() for _ in cross_cache.layers]
        cross_cache.layer_class_to_replicate = CrossLayer if not cross_cache.layers else None
    elif isinstance(cache, Cache):
        cache.layers = [_fit_layer(layer, length) for layer in cache.layers]
        if cache.layer_class_to_replicate is cache_utils.DynamicLayer:
            cache.layer_class_to_replicate = _growing(length)
    return cache


@lru_cache(None)
def _growing(length: int):
    return partial(Layer, length)


def _fit_layer(layer: Any, length: int) -> Any:
    kind = type(layer)
    sliding = getattr(layer, "is_sliding", False)
    if kind in (cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer):
        return Layer(length, sliding)
    if kind in INDEXED:
        return IndexedLayer(length)
    if kind in HYBRID:
        return HybridLayer(length, sliding, layer.number_of_states)
    return layer


def cache_leaves(tree: PyTree) -> list[Any]:
    """Returns all layers of the caches in a tree of model arguments, and all other leaves."""
    is_cache = lambda x: isinstance(x, Cache)
    result: list[Any] = []
    for leaf in jax.tree.leaves(tree, is_leaf=is_cache):
        if isinstance(leaf, EncoderDecoderCache):
            result += [*leaf.self_attention_cache.layers, *leaf.cross_attention_cache.layers]
        elif type(leaf) in (Cache, cache_utils.DynamicCache):
            result += leaf.layers
        else:
            result.append(leaf)
    return [x.value if isinstance(x, Static) else x for x in result]


def rewindable(tree: PyTree) -> bool:
    """Returns whether all that is cached are keys and values by position.

    Then later positions are dropped by moving the position back.
    """
    filled_layers = [x for x in cache_leaves(tree) if not isinstance(x, (CrossLayer, *EMPTY))]
    return bool(filled_layers) and all(type(x) in (Layer, IndexedLayer) for x in filled_layers)


def rewind(tree: PyTree, filled: object) -> Any:
    """Moves the caches back to ``filled`` positions; later ones are overwritten next."""
    for layer in cache_leaves(tree):
        if type(layer) in (Layer, IndexedLayer) and layer.is_initialized:
            layer.cumulative_length = filled
        if type(layer) is IndexedLayer and layer.is_indexer_initialized:
            layer.indexer_cumulative_length = filled
    return tree
