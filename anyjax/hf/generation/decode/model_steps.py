"""One step of a transformers model in generation, prepared and read back by the model's own code.

``Runner`` is a torch module around the model, so that a step traces the model's own
``prepare_inputs_for_generation``, ``forward`` and ``_update_model_kwargs_for_generation``: names of
caches, positions and all that differs between families stay in transformers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from anyjax import trees, warn_once
from anyjax.calls import taps
from anyjax.calls.program import Program
from anyjax.calls.wrapped import Arrays, Wrapped
from anyjax.errors import DataDependent, SlowGeneration, Unsupported
from anyjax.hf.generation.decode import static_cache
from anyjax.hf.generation.request import private
from anyjax.hf.generation.request.request import (
    ALIGNED,
    PREPARATION_SETTINGS,
    PROMPT_ONLY,
    TYPES,
    restoring_attributes,
    sees_ahead,
)
from anyjax.model import Model
from anyjax.source import SourceCache
from anyjax.torch.source import TorchSource
from anyjax.torch.state import none_attributes
from anyjax.trees import Static
from anyjax.typing import PyTree

BY_POSITION = (*ALIGNED, *TYPES)


class Generating(threading.local):
    """A thread's flag: whether it traces a step of generation."""

    active = False


GENERATING = Generating()


@contextlib.contextmanager
def masking_windows() -> Iterator[None]:
    """Makes transformers mask all sliding windows.

    It leaves masks out where its own cache holds nothing outside of the window.
    """
    kinds: dict[str, Any] = private.MASKS
    full, window = kinds["full_attention"], kinds["sliding_attention"]
    mask_tables = [
        x for x in kinds.values() if isinstance(x, dict) and x.get("sliding_attention") is full
    ]
    mask = lambda *args, **kwargs: (window if GENERATING.active else full)(*args, **kwargs)
    previous, GENERATING.active = GENERATING.active, True
    try:
        for masks in mask_tables:
            masks["sliding_attention"] = mask
        yield
    finally:
        GENERATING.active = previous
        for masks in mask_tables:
            masks["sliding_attention"] = full


class Runner(torch.nn.Module):
    """The steps of generation, as methods of a module around ``module``."""

    def __init__(self, module: PreTrainedModel):
        super().__init__()
        self.module = module

    def forward(self, method: str, **kwargs) -> Any:
        with masking_windows():
            return getattr(self, method)(**kwargs)

    def encode(
        self, name: str, inputs: torch.Tensor, model_inputs: dict[str, PyTree]
    ) -> dict[str, Any]:
        """Returns the arguments with the encoder's output among them."""
        return getattr(self.module, private.ENCODE)(
            inputs, dict(model_inputs), name, PREPARATION_SETTINGS
        )

    def positions(self, ids: torch.Tensor, model_inputs: dict[str, PyTree]) -> torch.Tensor:
        with restoring_attributes(self.module):
            return self.module._prepare_position_ids_for_generation(ids, dict(model_inputs))

    def prefill(
        self,
        ids: torch.Tensor,
        model_inputs: dict[str, PyTree],
        length: int | None,
        logits_to_keep: torch.Tensor | int | None = None,
        use_cache: bool = True,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reads the prompt into an empty cache of ``length`` positions, None for one that grows."""
        model_inputs = dict(model_inputs)
        if use_cache:
            self.module._prepare_cache_for_generation(
                PREPARATION_SETTINGS, model_inputs, None, ids.shape[0], 0
            )
            cache_class = _cache_of(self.module)
            if length is not None and private.CACHE not in model_inputs and cache_class:
                model_inputs[private.CACHE] = cache_class()
        if length is not None:
            cache_names = [k for k in private.CACHES if k in model_inputs]
            model_inputs |= {
                k: static_cache.fit_cache(model_inputs[k], length) for k in cache_names
            }
            if sees_ahead(self.module) or takes_alibi_mask(self.module):  # masks of forward's own
                for layer in static_cache.cache_leaves([model_inputs[k] for k in cache_names]):
                    layer.is_compileable = False
        return self.step(ids, model_inputs, None, logits_to_keep, use_cache, first=True)

    def step(
        self,
        ids: torch.Tensor,
        model_inputs: dict[str, PyTree],
        count: int | None,
        logits_to_keep: torch.Tensor | int | None = None,
        use_cache: bool = True,
        first: bool = False,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reads the last ``count`` of ``ids`` (None: all); returns (logits, changed arguments)."""
        module = self.module
        # transformers always passes use_cache, and some models have no default for it.
        model_inputs = dict(model_inputs) | {"use_cache": use_cache}
        if takes_alibi_mask(module):
            model_inputs["attention_mask"] = mask_over_cache(ids, model_inputs)
        inputs = module.prepare_inputs_for_generation(
            ids, next_sequence_length=count, is_first_iteration=first, **model_inputs
        )
        if first:  # some models drop an empty cache, which here has a fixed length
            dropped = [k for k in private.CACHES if k in model_inputs and inputs.get(k) is None]
            inputs |= {k: model_inputs[k] for k in dropped}
        if logits_to_keep is not None:
            inputs["logits_to_keep"] = logits_to_keep
        out = module(**inputs, return_dict=True)
        unaligned = {k: v for k, v in model_inputs.items() if k not in BY_POSITION}
        updated = module._update_model_kwargs_for_generation(
            out, dict(unaligned), is_encoder_decoder=module.config.is_encoder_decoder
        )
        return out.logits, {
            k: v for k, v in updated.items() if k in private.CACHES or v is not unaligned.get(k)
        }

    def reorder(self, state: dict[str, PyTree], rows: torch.Tensor) -> dict[str, Any]:
        """Returns the state with the rows that beam search goes on with."""
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


def takes_alibi_mask(module: PreTrainedModel) -> bool:
    """Returns whether forward computes ALiBi's biases from a mask ``[batch, length]``.

    Such models (Falcon) take no other mask; Bloom has ``create_masks_for_generate`` for it.
    """
    makes_masks = hasattr(type(module), "create_masks_for_generate")
    return not makes_masks and getattr(module.config, "alibi", False) is True


def mask_over_cache(ids: torch.Tensor, model_inputs: dict[str, PyTree]) -> torch.Tensor | None:
    """Returns the mask extended to all positions of the cache; the same mask without a cache."""
    mask, layers = (
        model_inputs.get("attention_mask"),
        static_cache.cache_leaves([model_inputs.get(private.CACHE)]),
    )
    layer = next((x for x in layers if isinstance(x, static_cache.Layer)), None)
    if layer is None:
        return mask
    if mask is None:
        return torch.ones((ids.shape[0], layer.max_cache_len), dtype=torch.long)
    return torch.nn.functional.pad(mask, (0, layer.max_cache_len - mask.shape[-1]))


def _cache_of(module: torch.nn.Module) -> type[Cache] | None:
    """Returns the class of cache that a model's own file defines, which its forward needs."""
    code = sys.modules[type(module).__module__]
    defined = (x for x in vars(code).values() if getattr(x, "__module__", None) == code.__name__)
    return next((x for x in defined if isinstance(x, type) and issubclass(x, Cache)), None)


class RunnerSource(Wrapped):
    """A Runner's source, called with the names of its module's weights."""

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """Returns (params, state) by the Runner's names."""
        prefixed = lambda tree: {f"module.{k}": v for k, v in tree.items()}
        return prefixed(params), prefixed(state)

    def __call__(self, params, state, args, kwargs, rng=None):
        out, written = super().__call__(params, state, args, kwargs, rng)
        name = lambda k: k.removeprefix("module.")
        new = {name(k): v for k, v in written.items()}
        return out, trees.Written(new, {*map(name, written.missed)}, written.holds)


@dataclass(frozen=True, eq=False)
class StepSource(TorchSource):
    """A Runner as torch's source; taps know modules by the paths of the model."""

    paths: dict[int, str] = field(default_factory=dict, kw_only=True)
    taps_must_run = False  # not every step runs them


# Beside the arguments that a step changes:
READINGS = "readings of taps"
MEMORY = "memory of modules"  # tensors that modules keep from step to step, as RecurrentGemma's do


def _runner_source(source: Any) -> Any:
    """Returns the Runner's source, with the wrappers of the model's source around it."""
    notes = source.cache.notes
    if Runner not in notes:
        if isinstance(source, Wrapped):
            notes[Runner] = replace(source, base=_runner_source(source.base), cache=SourceCache())
        else:
            modes = False, *source.training
            runner = StepSource(
                Runner(source.code),
                modes,
                source.on_missing,
                source.precision,
                taps=source.taps,
                paths=source.paths,
            )
            notes[Runner] = RunnerSource(runner)
    return notes[Runner]


def call_runner(model: Model, method: str, **kwargs) -> Any:
    """Runs a method of Runner as a pure JAX function; call it inside ``jit``.

    What taps on the model read is in the changed arguments of a step, as ``READINGS``.
    Values that are no arrays come back as ``Static``, so that the result may leave ``jit``.
    """
    source = _runner_source(model.source)
    is_static = lambda x: isinstance(x, Static)
    kwargs = jax.tree.map(lambda x: x.value if is_static(x) else x, kwargs, is_leaf=is_static)
    if inputs := kwargs.get("model_inputs"):
        memory = inputs.get(MEMORY, {})
        kwargs["model_inputs"] = {k: x for k, x in inputs.items() if k != MEMORY}
    else:
        memory = {}
    with none_attributes.of_libraries():
        state = {**model.state, **memory}
        out, written = source(model.params, state, (), {"method": method, **kwargs})
    out, readings = taps.split_readings(model.source.taps, out)
    beside: dict[str, Any] = {READINGS: readings} if any(readings) else {}
    names = memory or (written.missed - model.state.keys() if method == "prefill" else ())
    if names:
        beside[MEMORY] = {k: written.get(k, memory.get(k)) for k in names}
    if beside:
        logits, changed = out
        out = logits, changed | beside
    return jax.tree.map(lambda x: x if trees.is_array(x) else Static(x), out)


def call_program(program: Program, *args: Any) -> Any:
    """Runs a jitted program; op by op, where the model reads values to decide what it does."""
    try:
        return program(*args)
    except DataDependent as error:
        warn_once.warn(f"{error.what}: this part of the generation runs op by op", SlowGeneration)
        array = lambda x: jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x
        return program.__wrapped__(*jax.tree.map(array, args))


def split_static(
    model_inputs: dict[str, PyTree],
) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...]]:
    """Returns (arrays to trace, static values).

    Integers beside the text are static, as they decide shapes (grids and sizes of images), and so
    is everything that is no array.
    """
    text = {*BY_POSITION, "input_ids", "decoder_input_ids", "encoder_outputs", *PROMPT_ONLY}
    sizes = {"image_sizes", "image_sizes_videos", "num_local_patches", "patches_grid"}
    traced: dict[str, Any] = {}
    static = []
    for name, value in model_inputs.items():
        array = trees.is_array(value)
        if (not array and not isinstance(value, trees.PLAIN)) or (
            array and (value.dtype.kind not in "iu" or (name in text and name not in sizes))
        ):
            traced[name] = value
        else:
            static.append((name, Static(trees.Constant(value) if array else value)))
    return traced, tuple(static)


def selects_logits(model: Model) -> bool:
    """Returns whether forward takes ``logits_to_keep``."""
    return "logits_to_keep" in model.source.signature.parameters


def has_argument(model: Model, name: str) -> bool:
    """Returns whether forward has an argument of this name."""
    return name in model.source.signature.parameters
