"""A language model's cache as a value, for decoding loops of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from transformers import PreTrainedModel

from anyjax import trees
from anyjax.calls.program import program
from anyjax.dtypes import fitting
from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.decode import long_rope, model_steps, programs
from anyjax.hf.generation.job import strategy
from anyjax.hf.generation.job.generate import language_model
from anyjax.hf.generation.job.job import Job
from anyjax.hf.generation.job.strategy import Decoding
from anyjax.hf.generation.request import private
from anyjax.hf.generation.request.request import (
    PROMPT_ONLY,
    as_numpy,
    as_torch,
    build_request,
    restoring_attributes,
    sees_ahead,
)
from anyjax.hf.loading import inputs
from anyjax.model import Model
from anyjax.trees import Static
from anyjax.typing import ArrayLike, Output, PyTree

if TYPE_CHECKING:
    from anyjax.source import Source


@dataclass(frozen=True, eq=False)
class Cache:
    """A model's memory of a text, a pytree of arrays; ``model.cache(length)`` makes one.

    Attributes:
      length: the number of positions.
      at: the number of filled positions.
      state: keys, values, recurrent states, as the model keeps them.
      stays, along: further arguments of the model, once and by position.
      buffers: the model's own state.
      source: the model's callable.

    Example:
      >>> import numpy as np
      >>> model = anyjax.from_pretrained("examples/tiny-llama")
      >>> logits, cache = model.cache(16).prefill(model.params, np.array([[1, 5, 7]]))
      >>> logits, cache = cache.step(model.params, logits.argmax(-1))
      >>> int(cache.at)
      4
    """

    length: int
    source: Any = field(repr=False)
    buffers: dict[str, jax.Array] = field(repr=False)
    at: jax.Array | int = 0
    state: dict[str, Output] = field(default_factory=dict, repr=False)
    stays: dict[str, Output] = field(default_factory=dict, repr=False)
    along: dict[str, Output] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Model, length: int) -> Cache:
        """Returns an empty cache of ``length`` positions, for a decoding loop of your own.

        It is a pytree of arrays with two pure functions, for ``jit``, ``scan`` and ``while_loop``:
        ``logits, cache = cache.prefill(params, ids, mask)`` reads the prompts (``ids`` and ``mask``
        ``[batch, tokens]``, left-padded), ``logits, cache = cache.step(params, token)`` one token
        ``[batch]`` more; ``logits`` are float32 ``[batch, vocabulary]``, after the last token.

        Raises:
          Unsupported: no language model, or one whose states change their shapes.

        Example:
          >>> import jax, numpy as np
          >>> model = anyjax.from_pretrained("examples/tiny-llama")
          >>> @jax.jit
          ... def greedy(params, ids):
          ...     logits, cache = model.cache(ids.shape[1] + 7).prefill(params, ids)
          ...     def step(carry, _):
          ...         token, cache = carry
          ...         logits, cache = cache.step(params, token)
          ...         return (logits.argmax(-1), cache), token
          ...     last, tokens = jax.lax.scan(step, (logits.argmax(-1), cache), length=7)
          ...     return jax.numpy.vstack([tokens, last[0]]).T
          >>> ids = np.array([[4, 5, 7], [3, 8, 9]])
          >>> text = anyjax.generate(model, ids, max_new_tokens=8, eos_token_id=-1)
          >>> bool((greedy(model.params, ids) == text[:, 3:]).all())
          True
        """
        module = language_model(model)
        if not getattr(type(module), "_can_compile_fullgraph", False):
            _check_fixed_shapes(model, module)
        return cls(length, model.source, dict(model.state))

    def prefill(
        self,
        params: dict[str, jax.Array],
        ids: Int[ArrayLike, "batch tokens"],
        mask: Int[ArrayLike, "batch tokens"] | None = None,
        **inputs: Any,
    ) -> tuple[Float[Array, "batch vocabulary"], Cache]:
        """Reads the prompts; returns (logits after them, float32; the filled cache).

        Args:
          params: arrays as in ``model.params``.
          ids: prompts, left-padded; what the encoder reads where there is one.
          mask: 1 for tokens, 0 for padding.
          **inputs: further inputs of the model, such as ``pixel_values``; ``decoder_input_ids``
            instead of the start token.

        Raises:
          WrongArguments: the cache is filled or too short.
          Unsupported: a model that reads its text anew within this length (Phi-3 at 4096).

        Example:
          >>> model = anyjax.from_pretrained("examples/tiny-llama")
          >>> ids = jnp.array([[4, 5, 7]])
          >>> logits, cache = model.cache(8).prefill(model.params, ids)
          >>> logits.shape[0], int(cache.at)
          (1, 3)
        """
        if self.state:
            raise WrongArguments(
                "this cache is filled already",
                why="a prompt is the beginning of a text",
                do="call prefill of the empty cache that model.cache(length) returned",
            )
        prompt = _as_int32(ids)
        if mask is None and sees_ahead(self.source.module):
            mask = jnp.ones(prompt.shape, jnp.int32)
        model_inputs = inputs if mask is None else inputs | {"attention_mask": mask}
        model_inputs = {k: _as_int32(v) for k, v in model_inputs.items()}
        _refuse_renewal(self, prompt)
        further = _split_inputs(self, params, prompt, model_inputs)
        return self.after(_prefill, params, prompt, *further)

    def step(
        self, params: dict[str, jax.Array], token: Int[ArrayLike, " batch"]
    ) -> tuple[Float[Array, "batch vocabulary"], Cache]:
        """Reads one token more for each row; returns (logits after it, float32; the cache).

        Where the cache is full this raises, or under ``jit`` gives logits of NaN.

        Args:
          params: arrays as in ``model.params``.
          token: the next token of each row.

        Raises:
          WrongArguments: there is no prompt yet, or no room.

        Example:
          >>> model = anyjax.from_pretrained("examples/tiny-llama")
          >>> logits, cache = model.cache(8).prefill(model.params, jnp.array([[4, 5, 7]]))
          >>> logits, cache = cache.step(model.params, logits.argmax(-1))
          >>> int(cache.at)
          4
        """
        if not self.state:
            raise WrongArguments(
                "this cache is empty",
                why="a step goes on from a prompt",
                do="call logits, cache = cache.prefill(params, ids) first",
            )
        if not isinstance(self.at, jax.core.Tracer) and int(self.at) >= self.length:
            _too_short(self.length, int(self.at) + 1)
        return self.after(_step, params, _as_int32(token))

    def after(
        self, run: Callable[..., Any], params: dict[str, jax.Array], *args: Any
    ) -> tuple[jax.Array, Cache]:
        """Runs a program with this cache, without its source; returns (logits, cache)."""
        logits, cache = run(self.model(params), replace(self, source=None, buffers={}), *args)
        return logits, replace(cache, source=self.source, buffers=self.buffers)

    def model(self, params: dict[str, jax.Array]) -> Model:
        return Model(params, self.buffers, self.source)


jax.tree_util.register_dataclass(
    Cache,
    data_fields=["buffers", "at", "state", "stays", "along"],
    meta_fields=["length", "source"],
)


def _check_fixed_shapes(model: Model, module: PreTrainedModel) -> None:
    """Raises Unsupported for a model whose states do not keep their shape."""
    example = inputs.example(module, length=8)
    ids = example.pop(module.main_input_name)
    example = {k: v for k, v in example.items() if k not in private.PROMPT_ONLY}
    with jax.ensure_compile_time_eval():
        request = build_request(module, ids, example | {"max_new_tokens": 3, "do_sample": False})
        job = Job(model, request, None, None, None)
        if not strategy.is_exact(Decoding.CACHED, job, replace(job.plan, cached=True)):
            _refuse_growing(model.source)


def _refuse_renewal(cache: Cache, ids: jax.Array) -> None:
    """Raises Unsupported where steps would mix two sets of rotary frequencies."""
    module = cache.source.module
    if module.config.is_encoder_decoder or ids.ndim != 2:
        return
    if at := long_rope.renewed_at(module, ids.shape[1], cache.length + 1):
        what = f"model.cache({cache.length}) and a prompt of {ids.shape[1]} tokens"
        long_rope.refuse_renewal(
            module, what, f"end before (model.cache({at - 1})), or call anyjax.generate"
        )


def _split_inputs(cache: Cache, params, ids, model_inputs: dict[str, PyTree]):
    """Returns forward's arguments besides ids, positions among them: (arrays, static values)."""
    model, module = cache.model(params), cache.source.module
    traced, static = model_steps.split_static(model_inputs)
    if module.config.is_encoder_decoder:
        return traced, static
    if model_steps.has_argument(model, "position_ids") and "position_ids" not in traced:
        if any(isinstance(x, jax.core.Tracer) for x in (ids, *model_inputs.values())):
            position_inputs = traced | dict(static)
            traced["position_ids"] = model_steps.call_runner(
                model, "positions", ids=ids, model_inputs=position_inputs
            )
        else:  # positions computed from the sizes of images need values
            position_inputs = {k: as_torch(v) for k, v in model_inputs.items()}
            with restoring_attributes(module):
                places = module._prepare_position_ids_for_generation(as_torch(ids), position_inputs)
            traced["position_ids"] = as_numpy(places)
    return traced, static


@program(static_argnames="static")
def _prefill(model: Model, cache: Cache, ids, model_inputs, static):
    module: Any = model.source.module
    model_inputs = model_inputs | dict(static)
    if module.config.is_encoder_decoder:
        start = model_inputs.pop("decoder_input_ids", None)
        name = module.main_input_name
        model_inputs = model_steps.call_runner(
            model, "encode", name=name, inputs=ids, model_inputs=model_inputs
        )
        model_inputs = {
            k: v for k, v in model_inputs.items() if not (isinstance(v, Static) and v.value is None)
        }
        ids = jnp.full((len(ids), 1), _start_token(module), jnp.int32) if start is None else start
    if ids.shape[1] > cache.length:
        _too_short(cache.length, ids.shape[1])
    options = {"logits_to_keep": 1} if model_steps.selects_logits(model) else {}
    logits, state = model_steps.call_runner(
        model, "prefill", ids=ids, model_inputs=model_inputs, length=cache.length, **options
    )
    by_position = programs.inputs_by_position(model)
    along = {k: v for k, v in model_inputs.items() if k in by_position}
    filled = replace(
        cache,
        at=jnp.int32(ids.shape[1]),
        state=state,
        stays={
            k: v for k, v in model_inputs.items() if k not in (*PROMPT_ONLY, *by_position, *state)
        },
        along=programs.extended(along, cache.length),
    )
    return logits[..., -1, :].astype(jnp.float32), filled


@program()
def _step(model: Model, cache: Cache, token):
    at = cache.at
    try:
        logits, state = programs.advance(
            model, token[:, None], at + 1, cache.stays, cache.state, cache.along
        )
    except programs.CacheChangesShape:
        _refuse_growing(model.source)
    logits = jnp.where(at < cache.length, logits[..., -1, :].astype(jnp.float32), jnp.nan)
    return logits, replace(cache, at=at + 1, state=state)


def _as_int32(value: object) -> Any:
    """Returns integers as int32, as programs here take them; JAX arrays unchanged."""
    if not trees.is_array(value) or isinstance(value, jax.Array):
        return value
    array = np.asarray(value)
    return fitting(array).astype(np.int32) if array.dtype == np.int64 else array


def _start_token(module: PreTrainedModel) -> int:
    settings, _ = module._prepare_generation_config(None)
    private.prepare_special_tokens(module, settings, True, 1)
    return int(settings._decoder_start_token_tensor.reshape(-1)[0])


def _too_short(length: int, position: int) -> NoReturn:
    raise WrongArguments(
        f"position {position} of a cache for {length}",
        why="its arrays have one shape from the beginning",
        do="make it long enough for the prompt and all new tokens: model.cache(length)",
    )


def _refuse_growing(source: Source) -> NoReturn:
    raise Unsupported(
        f"model.cache with {source.name}",
        why="its states change their shapes from token to token",
        do="use anyjax.generate, which then runs the whole text again",
    )
