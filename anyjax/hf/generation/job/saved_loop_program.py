"""The whole decoding loop as one program to save: prompt, ``while_loop``, choice of tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedModel

from anyjax import trees
from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.decode import model_steps, programs
from anyjax.hf.generation.job import strategy
from anyjax.hf.generation.job.batch_loop_program import LoopParts, batch_of, loop_of_batch
from anyjax.hf.generation.job.generate import language_model, prompts_of, refuse_unserved
from anyjax.hf.generation.job.job import Job
from anyjax.hf.generation.request.logits_processors import OnHost
from anyjax.hf.generation.request.request import Request, build_request, sees_ahead
from anyjax.hf.generation.saved_loop import NAME
from anyjax.model import Model
from anyjax.saved import Extra
from anyjax.saved.dimensions import symbolic
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXT = {"attention_mask", "position_ids"}
# What an example of a forward pass may hold beside the prompt: the loop computes these itself.
COMPUTED = TEXT | {"token_type_ids", "cache_position", "labels", "past_key_values"}


def loop_of(
    model: Model,
    args: tuple,
    kwargs: Mapping[str, PyTree],
    shapes: Mapping[str, str] | None,
    options: Mapping[str, object],
) -> Extra:
    """Returns the loop for prompts of the example's batch and of its length or a shorter one; with
    pictures, sounds or an encoder for batches of the example's shapes and layout.

    The batch may be any where ``shapes`` names it. Numbers that depend on the length of the prompt,
    such as the minimum length of a text, are computed from it.

    Raises:
      Unsupported: an option or a model whose loop is not one program.
      WrongArguments: the example holds no ids.
    """
    options = dict(options)
    module = language_model(model)
    if module.config.is_encoder_decoder or _further_inputs(model, args, kwargs):
        _refuse_open_sizes(shapes)
        return loop_of_batch(model, module, batch_of(model, args, kwargs), options, PARTS)
    tokenizer = options.pop("tokenizer", None)
    ids = _example(args, kwargs)
    job, *other_jobs = (
        _job(model, module, x, options, tokenizer) for x in (ids, *_other_prompts(ids))
    )
    plan = _plan(job)
    leaves, structure = jax.tree.flatten((job.picker, np.int32(job.last)))
    grows = _grows_with_prompt(job, other_jobs)

    def picker_for(length):
        shifted = [x + (length - job.length) if m else x for x, m in zip(leaves, grows)]
        return jax.tree.unflatten(structure, shifted)[0]

    def run_loop(params, state, ids, mask, rows_asked, length, last, key):
        length = length if plan.padded else job.length
        weighted = replace(model, params=params, state=state)
        return _decode(weighted, plan, picker_for(length), ids, mask, rows_asked, length, last, key)

    batch_is_named = _names_batch(model, args, kwargs, shapes)
    # One row is another program: its axis is dropped or broadcast in places.
    any_number = jax.export.symbolic_shape("rows", constraints=("rows >= 2",))
    rows = any_number[0] if batch_is_named else len(job.request.ids)
    text = jax.ShapeDtypeStruct((rows, job.length), np.int32)
    number = jax.ShapeDtypeStruct((), np.int32)
    key = jax.ShapeDtypeStruct((2,), np.uint32) if plan.sample else None
    metadata = _metadata(job, plan, options, None if batch_is_named else len(ids), grows[-1])
    return Extra(NAME, run_loop, [text, text, number, number, number, key], metadata)


def _further_inputs(model: Model, args: tuple, kwargs: Mapping[str, PyTree]) -> bool:
    """Returns whether there are arrays beside the prompt that a text follows from."""
    names = trees.names(args, dict(kwargs), model.source.positional)
    leaves = jax.tree.leaves((args, dict(kwargs)))
    arrays = {re.split(r"[.\[]", n)[0] for n, x in zip(names, leaves) if trees.is_array(x)}
    fixed = {k for k, x in kwargs.items() if isinstance(x, trees.Static)}
    return bool((arrays | fixed) - COMPUTED - {"input_ids"})


def _refuse_open_sizes(shapes: Mapping[str, str] | None) -> None:
    """Raises Unsupported for names of sizes: the batch has one size, as its pictures have."""
    if shapes:
        raise Unsupported(
            f"generate= with shapes={dict(shapes)!r} and more than ids",
            why="a loop with pictures, sounds or an encoder is made for one size of its batch",
            do="leave shapes= out, and save each size into a folder of its own",
        )


def _example(args: tuple, kwargs: Mapping[str, PyTree]) -> np.ndarray:
    """Returns the ids of an example; ones, where it holds shapes alone."""
    input_ids = kwargs.get("input_ids", args[0] if args else None)
    if not trees.is_array(input_ids) or len(input_ids.shape) != 2:
        raise WrongArguments(
            "generate= without an example of input_ids [batch, length]",
            why="the loop is saved for prompts of a batch, and of a length at most",
            do="give the longest prompt: model.save(folder, ids, generate=dict(...))",
        )
    if not isinstance(input_ids, jax.ShapeDtypeStruct):
        return np.asarray(input_ids)
    if not all(isinstance(n, int) for n in input_ids.shape):
        raise Unsupported(
            f"generate= with input_ids of shape {input_ids.shape}",
            why="the cache is made for a batch and a greatest length",
            do="give the longest prompts as an array, and name the batch in shapes=",
        )
    return np.ones(input_ids.shape, np.int32)


def _names_batch(model: Model, args: tuple, kwargs: Mapping[str, Any], shapes: Any) -> bool:
    """Returns whether the number of prompts has a name in ``shapes``."""
    args, kwargs, _ = symbolic(model.source, args, dict(kwargs), shapes, ())
    ids: Any = kwargs.get("input_ids", args[0] if args else None)
    return jax.export.is_symbolic_dim(ids.shape[0])


def _other_prompts(ids: np.ndarray) -> list[np.ndarray]:
    """Returns prompts of other tokens, one token longer and of one token.

    They show which numbers grow with the length of the prompt.
    """
    changed = np.where(ids == 1, 2, 1)
    return [np.concatenate([ids[:, :1], changed], 1), changed[:, :1]]


def _job(
    model: Model,
    module: PreTrainedModel,
    ids: np.ndarray,
    options: dict[str, Any],
    tokenizer: PreTrainedTokenizerBase,
) -> Job:
    """Returns the call to be saved; its mask hides nothing of the prompt."""
    all_options = options | {"attention_mask": np.ones_like(ids)}
    request = build_request(module, prompts_of(module, ids), all_options)
    refuse_unserved(request.settings)
    key = jax.random.key(0) if request.settings.do_sample else None
    features = {"tokens that see later ones": sees_ahead(module)}
    features |= dict.fromkeys(sorted({*request.model_inputs} - TEXT), True)
    if unserved := [name for name, present in features.items() if present]:
        raise Unsupported(
            f"the saved loop of {model.source.name} with {', '.join(unserved)}",
            why="it takes ids with their mask",
            do="leave it out, or generate without saving",
        )
    _refuse_features(model, request, options)
    job = Job(model, request, key, None, tokenizer)
    _refuse_several_programs(model, job)
    return job


def _refuse_features(model: Model, request: Request, options: dict[str, Any]) -> None:
    """Raises Unsupported for outputs other than ids, and for help beside the model."""
    settings = request.settings
    features = {
        "num_beams": settings.num_beams > 1,
        "return_dict_in_generate": settings.return_dict_in_generate,
        "assistant_model": options.get("assistant_model"),
        "prompt_lookup_num_tokens": settings.prompt_lookup_num_tokens,
        "stopping_criteria": request.criteria,
    }
    if unserved := [name for name, present in features.items() if present]:
        raise Unsupported(
            f"the saved loop of {model.source.name} with {', '.join(unserved)}",
            why="it gives ids, by the model alone",
            do="leave it out, or generate without saving",
        )


def _refuse_several_programs(model: Model, job: Job) -> None:
    """Raises Unsupported for a loop that is more than one program."""
    functions = [getattr(x, "func", None) for x in job.picker.chain]
    hosted = [x.processor for x in functions if isinstance(x, OnHost)]
    features = {
        "guidance_scale": job.guide,
        "a cache that is made anew at a certain length": job.renewal,
        **{f"the logits processor {type(x).__name__}": True for x in hosted},
    }
    if unserved := [name for name, present in features.items() if present]:
        raise Unsupported(
            f"the saved loop of {model.source.name} with {', '.join(unserved)}",
            why="it would be more than one program, or call Python at every token",
            do="leave it out, or generate without saving",
        )


def _plan(job: Job) -> programs.Plan:
    plan = next(strategy.plans(job), None)
    if plan is None:
        raise Unsupported(
            f"the saved loop of {job.model.source.name}",
            why="its states or masks change their shapes with the text, so there is no one program",
            do="generate without saving",
        )
    return plan


def _grows_with_prompt(job: Job, other_jobs: list[Job]) -> list[bool]:
    """Returns which integers of the picker grow with the prompt; last, whether the length does.

    Raises:
      Unsupported: anything else depends on the prompt.
    """

    def flatten(job: Job) -> tuple[list[Any], Any]:
        return jax.tree.flatten((job.picker, np.int32(job.last)))

    leaves, structure = flatten(job)
    flattened = [flatten(x) for x in other_jobs]
    if any(other_structure != structure for _, other_structure in flattened):
        raise _depends_on_prompt()
    growth = [other.length - job.length for other in other_jobs]
    grows = []
    for i, leaf in enumerate(leaves):
        values = [other_leaves[i] for other_leaves, _ in flattened]
        is_constant = all(np.array_equal(leaf, value, equal_nan=True) for value in values)
        grows.append(not is_constant)
        if is_constant:
            continue
        is_integer = np.asarray(leaf).dtype.kind == "i"
        if not is_integer or not all(
            np.array_equal(leaf + n, value) for value, n in zip(values, growth)
        ):
            raise _depends_on_prompt()
    return grows


def _depends_on_prompt() -> Unsupported:
    return Unsupported(
        "a saved loop with options that depend on the prompt",
        why="the program has them as numbers, which would be those of the example",
        do="leave them out, or generate without saving",
    )


def _decode(
    model: Model, plan: programs.Plan, picker, ids, mask, rows_asked, length, last, key
) -> list[Any]:
    """Returns [the buffer of ids, length, rows with NaN behind the prompt, rows with NaN later].

    Rows behind the first ``rows_asked`` are not read. They count as ended, so that they do not make
    the text longer.
    """
    model_inputs = {}
    if model_steps.has_argument(model, "attention_mask"):
        model_inputs["attention_mask"] = mask
    if model_steps.has_argument(model, "position_ids"):
        positions = model_steps.call_runner(
            model, "positions", ids=ids, model_inputs=dict(model_inputs)
        )
        seen = jnp.arange(ids.shape[1]) < length
        model_inputs["position_ids"] = jnp.where(seen, positions, 0).astype(jnp.int32)
    model_inputs = {k: v for k, v in model_inputs.items() if v is not None}
    along = {k: _extended(k, v, length, plan.total) for k, v in model_inputs.items()}
    rows = ids.shape[0]
    buffer = jnp.zeros((rows, plan.total), jnp.int32)
    carry = {
        "ids": jax.lax.dynamic_update_slice(buffer, ids, (0, 0)),
        "at": jnp.asarray(length, jnp.int32),
        "done": jnp.arange(rows) >= rows_asked,
        "lost": jnp.zeros(rows, bool),
        "start": jnp.asarray(length, jnp.int32),
    }
    if key is not None:
        carry["rng"] = jax.random.wrap_key_data(key)
    logits, stays, carry = programs.prefill.__wrapped__(
        model, ids, model_inputs, None, carry, picker, last, plan, None
    )
    broken = jnp.zeros(rows, bool) if logits is None else jnp.isnan(logits).all(-1)
    carry = programs.decode.__wrapped__(model, carry, stays, along, last, last, picker, plan)
    return [carry["ids"], carry["at"], broken, carry["lost"]]


def _extended(name: str, value: Any, length: Any, total: int) -> Any:
    """Extends a mask or positions to ``total``, where the length of the prompt is traced.

    As in ``programs.extended``, later positions are seen and count on from the last one.
    """
    positions = jnp.arange(total)
    width = [(0, 0)] * (value.ndim - 1) + [(0, total - value.shape[-1])]
    extended = jnp.pad(value, width)
    if name == "attention_mask":
        return jnp.where(positions < length, extended, 1)
    last = jax.lax.dynamic_index_in_dim(value, length - 1, value.ndim - 1)
    return jnp.where(positions < length, extended, last + 1 + positions - length)


def _common_metadata(job: Job, plan: programs.Plan, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a loop, and the settings that follow from them."""
    settings = job.request.settings
    json_settings = {
        k: _json_value(v) for k, v in settings.to_dict().items() if not k.startswith("_")
    }
    hidden = {"max_length", "transformers_version"}
    return {
        "options": {k: _json_value(v) for k, v in options.items()},
        "settings": {k: v for k, v in json_settings.items() if v is not None and k not in hidden},
        "answers": settings.num_return_sequences,
        "length": job.length,
        "samples": plan.sample,
        "new_tokens": job.last - job.length,
        "last": None,
    }


def _metadata(
    job: Job, plan, options: dict[str, Any], batch: int | None, length_grows: bool
) -> dict[str, Any]:
    """Returns what ``saved_loop`` reads of a loop of ids alone."""
    settings, config = job.request.settings, cast(Any, jax.config)
    pad, ends = settings._pad_token_tensor, settings._eos_token_tensor
    infers = pad is not None and (ends is None or int(pad) not in np.asarray(ends))
    return _common_metadata(job, plan, options) | {
        "batch": batch,
        "shorter": plan.padded,
        "masked": model_steps.has_argument(job.model, "attention_mask"),
        "pad": int(pad) if infers else None,
        # whether the first rows draw the same tokens in a batch of any size
        "fewer": not plan.sample or config.jax_threefry_partitionable,
        "new_tokens": job.last - job.length if length_grows else None,
        "last": None if length_grows else job.last,
    }


def _json_value(value: object) -> Any:
    """Returns a setting as a value of JSON; as text where JSON has no such value."""
    if isinstance(value, trees.PLAIN) and not isinstance(value, (bytes, complex)):
        return value
    if isinstance(value, dict):
        return {str(k): _json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_json_value(x) for x in value]
    return np.asarray(value).tolist() if trees.is_array(value) else str(value)


PARTS = LoopParts(_refuse_features, _refuse_several_programs, _plan, _common_metadata)
