"""The whole decoding loop as one program to be saved: prompt, ``while_loop``, choice of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from tojax import trees
from tojax.errors import Unsupported, WrongArguments
from tojax.hf.generation.decode import model_steps, programs
from tojax.hf.generation.job import strategy
from tojax.hf.generation.job.generate import language_model, prompts_of, refuse
from tojax.hf.generation.job.job import Job
from tojax.hf.generation.request.logits_processors import OnHost
from tojax.hf.generation.request.request import request, sees_ahead
from tojax.hf.generation.saved_loop import NAME
from tojax.model import Model
from tojax.saved import Extra
from tojax.saved.dimensions import symbolic

TEXT = {"attention_mask", "position_ids"}


def loop_of(
    model: Model,
    args: tuple,
    kwargs: Mapping[str, Any],
    shapes: Mapping[str, str] | None,
    options: Mapping[str, Any],
) -> Extra:
    """The loop for prompts of the example's batch, or of any where ``shapes`` names it, and of its
    length or a shorter one.

    Numbers that depend on the length of the prompt, such as the least length of a text, are
    computed from it.

    Raises:
      Unsupported: an option or a model whose loop is not one program of ids alone.
      WrongArguments: the example holds no ids.
    """
    options = dict(options)
    tokenizer = options.pop("tokenizer", None)
    module = language_model(model, options)
    ids = _example(args, kwargs)
    job, *others = (_job(model, module, x, options, tokenizer) for x in (ids, *_other(ids)))
    plan = _plan(job)
    leaves, structure = jax.tree.flatten((job.picker, np.int32(job.last)))
    moving = _moving(job, others)

    def picked(length):
        here = [x + (length - job.length) if m else x for x, m in zip(leaves, moving)]
        return jax.tree.unflatten(structure, here)[0]

    def run(params, state, ids, mask, asked, length, last, key):
        length = length if plan.padded else job.length
        weighted = replace(model, params=params, state=state)
        return _decoded(weighted, plan, picked(length), ids, mask, asked, length, last, key)

    named = _names_batch(model, args, kwargs, shapes)
    # One row is another program: its axis is dropped and broadcast here and there.
    any_number = jax.export.symbolic_shape("rows", constraints=("rows >= 2",))
    rows = any_number[0] if named else len(job.asked.ids)
    text = jax.ShapeDtypeStruct((rows, job.length), np.int32)
    number = jax.ShapeDtypeStruct((), np.int32)
    key = jax.ShapeDtypeStruct((2,), np.uint32) if plan.sample else None
    about = _about(job, plan, options, None if named else len(ids), moving[-1])
    return Extra(NAME, run, [text, text, number, number, number, key], about)


def _example(args: tuple, kwargs: Mapping[str, Any]) -> np.ndarray:
    """The ids of an example; where it holds shapes alone, of one token."""
    given = kwargs.get("input_ids", args[0] if args else None)
    if not trees.is_array(given) or len(given.shape) != 2:
        raise WrongArguments(
            "generate= without an example of input_ids [batch, length]",
            why="the loop is saved for prompts of a batch, and of a length at most",
            do="give the longest prompt: model.save(folder, ids, generate=dict(...))",
        )
    if not isinstance(given, jax.ShapeDtypeStruct):
        return np.asarray(given)
    if not all(isinstance(n, int) for n in given.shape):
        raise Unsupported(
            f"generate= with input_ids of shape {given.shape}",
            why="the cache is made for a batch and a greatest length",
            do="give the longest prompts as an array, and name the batch in shapes=",
        )
    return np.ones(given.shape, np.int32)


def _names_batch(model: Model, args: tuple, kwargs: Mapping[str, Any], shapes: Any) -> bool:
    """Whether the number of prompts has a name in ``shapes``."""
    args, kwargs, _ = symbolic(model.source, args, dict(kwargs), shapes, ())
    ids: Any = kwargs.get("input_ids", args[0] if args else None)
    return jax.export.is_symbolic_dim(ids.shape[0])


def _other(ids: np.ndarray) -> list[np.ndarray]:
    """One token more and one alone, other ones, to see what moves with the length of the prompt."""
    changed = np.where(ids == 1, 2, 1)
    return [np.concatenate([ids[:, :1], changed], 1), changed[:, :1]]


def _job(model: Model, module: Any, ids: np.ndarray, options: dict[str, Any], tokenizer: Any):
    """The call that is to be saved, with all of the prompt seen."""
    given = options | {"attention_mask": np.ones_like(ids)}
    asked = request(module, prompts_of(module, ids), given)
    refuse(asked.settings)
    key = jax.random.key(0) if asked.settings.do_sample else None
    _refuse_more(model, module, asked, options)
    job = Job(model, asked, key, None, tokenizer)
    _refuse_programs(model, job)
    return job


def _refuse_more(model: Model, module: Any, asked: Any, options: dict[str, Any]) -> None:
    """Raises Unsupported for what is more than ids in and ids out."""
    settings = asked.settings
    found = {
        "an encoder": asked.encoder,
        "tokens that see later ones": sees_ahead(module),
        "num_beams": settings.num_beams > 1,
        "return_dict_in_generate": settings.return_dict_in_generate,
        "assistant_model": options.get("assistant_model"),
        "prompt_lookup_num_tokens": settings.prompt_lookup_num_tokens,
        "stopping_criteria": asked.criteria,
    }
    found |= dict.fromkeys(sorted({*asked.given} - TEXT), True)
    if more := [name for name, there in found.items() if there]:
        raise Unsupported(
            f"the saved loop of {model.source.name} with {', '.join(more)}",
            why="it takes ids with their mask, and gives ids",
            do="leave it out, or generate without saving",
        )


def _refuse_programs(model: Model, job: Job) -> None:
    """Raises Unsupported for a loop that is more than one program."""
    hosted = [
        x.func.processor for x in job.picker.chain if isinstance(getattr(x, "func", None), OnHost)
    ]
    found = {
        "guidance_scale": job.guide,
        "a cache that is made anew at a certain length": job.renewal,
        **{f"the logits processor {type(x).__name__}": True for x in hosted},
    }
    if more := [name for name, there in found.items() if there]:
        raise Unsupported(
            f"the saved loop of {model.source.name} with {', '.join(more)}",
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


def _moving(job: Job, others: list[Job]) -> list[bool]:
    """Which integers of the picker, and of the greatest length at last, grow with the prompt; all
    else is the same for every prompt.
    """

    def parts(job: Job) -> tuple[list[Any], Any]:
        return jax.tree.flatten((job.picker, np.int32(job.last)))

    leaves, structure = parts(job)
    found = [parts(x) for x in others]
    if any(same != structure for _, same in found):
        raise _of_length()
    moving = []
    for i, one in enumerate(leaves):
        there = [(x[i], other.length - job.length) for (x, _), other in zip(found, others)]
        still = all(np.array_equal(one, two, equal_nan=True) for two, _ in there)
        moving.append(not still)
        counts = np.asarray(one).dtype.kind == "i"
        if not still and not (counts and all(np.array_equal(one + n, two) for two, n in there)):
            raise _of_length()
    return moving


def _of_length() -> Unsupported:
    return Unsupported(
        "a saved loop with options that depend on the prompt",
        why="the program has them as numbers, which would be those of the example",
        do="leave them out, or generate without saving",
    )


def _decoded(model: Model, plan, picker, ids, mask, asked, length, last, key) -> list[Any]:
    """[ids in their buffer, length, rows without numbers behind the prompt, and later]

    Rows behind the first ``asked`` ones nobody reads: they have ended, or the text would be as long
    as the longest of them.
    """
    given = {}
    if model_steps.takes(model, "attention_mask"):
        given["attention_mask"] = mask
    if model_steps.takes(model, "position_ids"):
        place = model_steps.run(model, "positions", ids=ids, given=dict(given))
        seen = jnp.arange(ids.shape[1]) < length
        given["position_ids"] = jnp.where(seen, place, 0).astype(jnp.int32)
    given = {k: v for k, v in given.items() if v is not None}
    along = {k: _extended(k, v, length, plan.total) for k, v in given.items()}
    rows = ids.shape[0]
    room = jnp.zeros((rows, plan.total), jnp.int32)
    carry = {
        "ids": jax.lax.dynamic_update_slice(room, ids, (0, 0)),
        "at": jnp.asarray(length, jnp.int32),
        "done": jnp.arange(rows) >= asked,
        "lost": jnp.zeros(rows, bool),
        "start": jnp.asarray(length, jnp.int32),
    }
    if key is not None:
        carry["rng"] = jax.random.wrap_key_data(key)
    logits, stays, carry = programs.prefill.__wrapped__(
        model, ids, given, None, carry, picker, last, plan, None
    )
    broken = jnp.zeros(rows, bool) if logits is None else jnp.isnan(logits).all(-1)
    carry = programs.decode.__wrapped__(model, carry, stays, along, last, last, picker, plan)
    return [carry["ids"], carry["at"], broken, carry["lost"]]


def _extended(name: str, value: Any, length: Any, total: int) -> Any:
    """As ``programs.extended``, where the length of the prompt is traced: later positions are seen,
    and count on from the last one.
    """
    place = jnp.arange(total)
    width = [(0, 0)] * (value.ndim - 1) + [(0, total - value.shape[-1])]
    whole = jnp.pad(value, width)
    if name == "attention_mask":
        return jnp.where(place < length, whole, 1)
    last = jax.lax.dynamic_index_in_dim(value, length - 1, value.ndim - 1)
    return jnp.where(place < length, whole, last + 1 + place - length)


def _about(
    job: Job, plan, options: dict[str, Any], batch: int | None, moves: bool
) -> dict[str, Any]:
    """What ``saved_loop`` reads: the options as they were given, and what came of them."""
    settings, config = job.asked.settings, cast(Any, jax.config)
    pad, ends = settings._pad_token_tensor, settings._eos_token_tensor
    infers = pad is not None and (ends is None or int(pad) not in np.asarray(ends))
    plain = {k: _json(v) for k, v in settings.to_dict().items() if not k.startswith("_")}
    hidden = {"max_length", "transformers_version"}
    return {
        "options": {k: _json(v) for k, v in options.items()},
        "settings": {k: v for k, v in plain.items() if v is not None and k not in hidden},
        "batch": batch,
        "answers": settings.num_return_sequences,
        "length": job.length,
        "shorter": plan.padded,
        "masked": model_steps.takes(job.model, "attention_mask"),
        "pad": int(pad) if infers else None,
        "samples": plan.sample,
        # whether the first rows of many are drawn as if there were no others
        "fewer": not plan.sample or config.jax_threefry_partitionable,
        "new_tokens": job.last - job.length if moves else None,
        "last": None if moves else job.last,
    }


def _json(value: Any) -> Any:
    """A setting as JSON holds it, its name where it does not."""
    if isinstance(value, trees.PLAIN) and not isinstance(value, (bytes, complex)):
        return value
    if isinstance(value, dict):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_json(x) for x in value]
    return np.asarray(value).tolist() if trees.is_array(value) else str(value)
