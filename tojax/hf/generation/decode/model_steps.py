"""One call of a transformers model in generation, prepared and read back by its own code.

``Runner`` is a torch module around the model, so that a call traces the model's own
``prepare_inputs_for_generation``, ``forward`` and ``_update_model_kwargs_for_generation``: names of
caches, positions and whatever else a family does in its own way stay transformers' business.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from transformers.cache_utils import Cache
from transformers.integrations import sdpa_attention

from tojax import trees, warn_once
from tojax.calls.wrapped import Arrays, Wrapped
from tojax.errors import DataDependent, SlowGeneration, Unsupported
from tojax.hf.generation.decode import static_cache as caches
from tojax.hf.generation.request import private
from tojax.hf.generation.request.request import (
    ALIGNED,
    PLAIN,
    PROMPT_ONLY,
    TYPES,
    sees_ahead,
    unchanged,
)
from tojax.model import Model
from tojax.source import SourceCache
from tojax.torch.compat.patches import replaces
from tojax.torch.source import TorchSource
from tojax.trees import Static

FOLLOWS = (*ALIGNED, *TYPES)


class Generating(threading.local):
    """Whether this thread traces a step of generation."""

    now = False


GENERATING = Generating()


def _grouped() -> Any:
    heads, layer = torch.ones(1, 2, 1, 1), SimpleNamespace(num_key_value_groups=2)
    return sdpa_attention.sdpa_attention_forward(layer, heads, heads[:, :1], heads[:, :1], None)


@replaces(private.GROUPED, probe=_grouped)
def use_gqa_in_sdpa(original, *args):
    """Attention over grouped heads without repeating their keys, which is for torch's kernels."""
    return True if GENERATING.now else original(*args)


@contextlib.contextmanager
def windowed() -> Iterator[None]:
    """Masks of all sliding windows, also where transformers leaves one out because its own cache
    holds nothing outside of the window.
    """
    kinds: dict[str, Any] = private.MASKS
    full, window = kinds["full_attention"], kinds["sliding_attention"]
    found = [
        x for x in kinds.values() if isinstance(x, dict) and x.get("sliding_attention") is full
    ]
    mask = lambda *args, **given: (window if GENERATING.now else full)(*args, **given)
    before, GENERATING.now = GENERATING.now, True
    try:
        for masks in found:
            masks["sliding_attention"] = mask
        yield
    finally:
        GENERATING.now = before
        for masks in found:
            masks["sliding_attention"] = full


class Runner(torch.nn.Module):
    """The calls that generation makes of ``module``."""

    def __init__(self, module: Any):
        super().__init__()
        self.module = module

    def forward(self, what: str, **kwargs) -> Any:
        """``what`` is the name of one of the methods below."""
        with windowed():
            return getattr(self, what)(**kwargs)

    def encode(self, name: str, inputs: torch.Tensor, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments with the encoder's output among them."""
        return getattr(self.module, private.ENCODE)(inputs, dict(given), name, PLAIN)

    def positions(self, ids: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        """The prompt's positions."""
        with unchanged(self.module):
            return self.module._prepare_position_ids_for_generation(ids, dict(given))

    def prefill(
        self,
        ids: torch.Tensor,
        given: dict[str, Any],
        length: int | None,
        keep: torch.Tensor | int | None,
        use_cache: bool,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """The prompt with an empty cache: ``length`` is its room, None for one that grows."""
        given = dict(given)
        if use_cache:
            self.module._prepare_cache_for_generation(PLAIN, given, None, ids.shape[0], 0)
            own = _cache_of(self.module)
            if length is not None and private.CACHE not in given and own:
                given[private.CACHE] = own()
        if length is not None:
            held = [k for k in private.CACHES if k in given]
            given |= {k: caches.fit(given[k], length) for k in held}
            if sees_ahead(self.module) or biased(self.module):  # masks of forward's own
                for layer in caches.layers([given[k] for k in held]):
                    layer.is_compileable = False
        return self.step(ids, given, None, keep, use_cache, first=True)

    def step(
        self,
        ids: torch.Tensor,
        given: dict[str, Any],
        count: int | None,
        keep: torch.Tensor | int | None,
        use_cache: bool,
        first: bool = False,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """(logits, the arguments that changed): the last ``count`` of ``ids``, all for None."""
        module = self.module
        # A caller in transformers gives all of them, some models take them without a default.
        given = dict(given) | {"use_cache": use_cache}
        if biased(module):
            given["attention_mask"] = over_cache(ids, given)
        inputs = module.prepare_inputs_for_generation(
            ids, next_sequence_length=count, is_first_iteration=first, **given
        )
        if first:  # some drop a cache that is empty: it is as good as none, but has room
            dropped = [k for k in private.CACHES if k in given and inputs.get(k) is None]
            inputs |= {k: given[k] for k in dropped}
        if keep is not None:
            inputs["logits_to_keep"] = keep
        out = module(**inputs, return_dict=True)
        kept = {k: v for k, v in given.items() if k not in FOLLOWS}
        after = module._update_model_kwargs_for_generation(
            out, dict(kept), is_encoder_decoder=module.config.is_encoder_decoder
        )
        return out.logits, {
            k: v for k, v in after.items() if k in private.CACHES or v is not kept.get(k)
        }

    def reorder(self, state: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
        """The state with the rows that beam search goes on with."""
        state = dict(state)
        for name in private.CACHES:
            if name not in state:
                continue
            if hasattr(self.module, "_reorder_cache"):
                state[name] = self.module._reorder_cache(state[name], rows)
            elif hasattr(state[name], "reorder_cache"):
                state[name].reorder_cache(rows)
            else:
                raise Unsupported(
                    f"beam search with {type(self.module).__name__}",
                    why=f"transformers cannot reorder its {name}",
                    do="generate without beams: num_beams=1",
                )
        return state


def biased(module: Any) -> bool:
    """Whether forward makes ALiBi's biases out of a mask ``[batch, length]`` and takes no other.

    (Falcon; Bloom tells generation so itself.)
    """
    own = hasattr(type(module), "create_masks_for_generate")
    return not own and getattr(module.config, "alibi", False) is True


def over_cache(ids: torch.Tensor, given: dict[str, Any]) -> torch.Tensor | None:
    """The mask for all positions of the cache; as it came where there is no cache."""
    mask, held = given.get("attention_mask"), caches.layers([given.get(private.CACHE)])
    layer = next((x for x in held if isinstance(x, caches.Layer)), None)
    if layer is None:
        return mask
    if mask is None:
        return torch.ones((ids.shape[0], layer.max_cache_len), dtype=torch.long)
    return torch.nn.functional.pad(mask, (0, layer.max_cache_len - mask.shape[-1]))


def _cache_of(module: torch.nn.Module) -> type[Cache] | None:
    """The class of cache that a model's own file defines: its forward takes no other."""
    code = sys.modules[type(module).__module__]
    own = (x for x in vars(code).values() if getattr(x, "__module__", None) == code.__name__)
    return next((x for x in own if isinstance(x, type) and issubclass(x, Cache)), None)


class Inner(Wrapped):
    """A Runner's source by the names of its module's weights."""

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """(params, state) of the Runner."""
        prefixed = lambda tree: {f"module.{k}": v for k, v in tree.items()}
        return prefixed(params), prefixed(state)

    def __call__(self, params, state, args, kwargs, rng=None):
        out, written = super().__call__(params, state, args, kwargs, rng)
        name = lambda k: k.removeprefix("module.")
        new = {name(k): v for k, v in written.items()}
        return out, trees.Written(new, {*map(name, written.missed)}, written.holds)


def _source(source: Any) -> Any:
    """The Runner of a model's module, and around it what is around the module."""
    notes = source.cache.notes
    if Runner not in notes:
        if isinstance(source, Wrapped):
            notes[Runner] = replace(source, base=_source(source.base), cache=SourceCache())
        else:
            modes = False, *source.training
            runner = TorchSource(Runner(source.code), modes, source.on_missing)
            notes[Runner] = Inner(runner)
    return notes[Runner]


def run(model: Model, what: str, **kwargs) -> Any:
    """A method of Runner as a pure JAX function; call it inside ``jit``.

    Values that are no arrays come back as ``Static``, so that the result may leave ``jit``.
    """
    source = _source(model.source)
    kwargs = jax.tree.map(_open, kwargs, is_leaf=lambda x: isinstance(x, Static))
    out, _ = source(model.params, model.state, (), {"what": what, **kwargs})
    return jax.tree.map(lambda x: x if trees.is_array(x) else Static(x), out)


def by_values(program: Any, *args: Any) -> Any:
    """What a jitted program gives; op by op where the model looks at values to decide."""
    try:
        return program(*args)
    except DataDependent as error:
        warn_once.warn(
            f"{error.what}: this part of the generation runs op by op",
            SlowGeneration,
        )
        array = lambda x: jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x
        return program.__wrapped__(*jax.tree.map(array, args))


def _open(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def split(given: dict[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...]]:
    """(arrays to trace, values that are part of the program).

    Integers beside the text decide shapes (grids and sizes of images), so they are static; so is
    what is no array.
    """
    text = {*FOLLOWS, "input_ids", "decoder_input_ids", "encoder_outputs", *PROMPT_ONLY}
    sizes = {"image_sizes", "image_sizes_videos", "num_local_patches", "patches_grid"}
    traced: dict[str, Any] = {}
    fixed = []
    for name, value in given.items():
        array = trees.is_array(value)
        if (not array and not isinstance(value, trees.PLAIN)) or (
            array and (value.dtype.kind not in "iu" or (name in text and name not in sizes))
        ):
            traced[name] = value
        else:
            fixed.append((name, Static(trees.Constant(value) if array else value)))
    return traced, tuple(fixed)


def keeps(model: Model) -> bool:
    """Whether forward can be told which positions' logits are wanted."""
    return "logits_to_keep" in model.source.signature.parameters


def takes(model: Model, name: str) -> bool:
    """Whether forward has an argument of this name."""
    return name in model.source.signature.parameters
