"""The decoding loop of texts beside pictures or sounds, or behind an encoder, as a program to save.

It is made for a batch of one size. Floats and ids are its arguments; arrays that lay out (grids,
masks whose positions follow from them) are part of it, and a call with others is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedModel

from anyjax import trees
from anyjax.calls.layouts import with_arrays
from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.decode import programs
from anyjax.hf.generation.job.custom_generate import WRAPS, run_own_generate
from anyjax.hf.generation.job.generate import generate, prompts_of, refuse_unserved
from anyjax.hf.generation.job.job import Job
from anyjax.hf.generation.request.request import Request, build_request
from anyjax.hf.generation.saved_loop import NAME, trimmed
from anyjax.model import Model
from anyjax.saved import Extra
from anyjax.saved.calls import describe_call
from anyjax.typing import PyTree

IGNORED = {"labels", "past_key_values", "cache_position"}  # of a forward pass, not of generation
TEXT = ("input_ids", "decoder_input_ids")


class Captured(BaseException):  # which no code around the call catches
    """The call that a class's own generate makes of the common one."""


@dataclass(frozen=True)
class Inputs:
    """The arrays of a batch: arguments of the program, and those that are part of it."""

    traced: dict[str, np.ndarray]
    layout: dict[str, np.ndarray]

    def described(self) -> dict[str, Any]:
        """Returns each by name: dtype and shape, and the values of a layout."""
        leaves = [*self.traced.values(), *map(trees.Constant, self.layout.values())]
        return describe_call(leaves, [*self.traced, *self.layout])


def batch_of(model: Model, args: tuple, kwargs: Mapping[str, PyTree]) -> dict[str, np.ndarray]:
    """Returns the arrays of an example by name; zeros for floats of which only the shape is given.

    Raises:
      WrongArguments: integers without values, which may lay out.
    """
    named = {**dict(zip(model.source.positional, args)), **with_arrays(dict(kwargs))}
    arrays = {k: x for k, x in named.items() if trees.is_array(x) and k not in IGNORED}
    for name, x in arrays.items():
        if isinstance(x, jax.ShapeDtypeStruct):
            if np.dtype(x.dtype).kind in "iub" and name not in TEXT:
                raise WrongArguments(
                    f"generate= with the shape of {name} alone",
                    why="its values may decide what is computed",
                    do=f"give {name} as an array",
                )
            arrays[name] = np.ones(x.shape, x.dtype)
        elif not isinstance(x, np.ndarray):
            arrays[name] = np.asarray(x.detach() if hasattr(x, "detach") else x)
    return arrays


def loop_of_batch(
    model: Model,
    module: PreTrainedModel,
    batch: dict[str, np.ndarray],
    options: dict[str, Any],
    parts: LoopParts,
) -> Extra:
    """Returns the loop for batches of the example's shapes and layout.

    Raises:
      Unsupported: an option or a model whose loop is not one program.
    """
    tokenizer = options.pop("tokenizer", None)

    def job_of(batch: dict[str, np.ndarray]) -> Job:
        request = _request(model, module, batch, options)
        refuse_unserved(request.settings)
        parts.refuse_features(model, request, options)
        key = jax.random.key(0) if request.settings.do_sample else None
        job = Job(model, request, key, None, tokenizer)
        parts.refuse_several_programs(model, job)
        return job

    job = job_of(batch)
    plan = parts.plan(job)
    inputs = _inputs(job, batch)
    _check_independent(job, job_of, inputs, batch)
    prompt = next((k for k in TEXT[::-1] if k in inputs.traced), "")
    prompt = "" if job.request.encoder and prompt == "input_ids" else prompt

    def run_loop(params, state, *arrays):
        *batch, last, key = arrays
        named = dict(zip(inputs.traced, batch))
        weighted = replace(model, params=params, state=state)
        return _decode(weighted, job, plan, named, named.get(prompt, job.request.ids), last, key)

    key = jax.ShapeDtypeStruct((2,), np.uint32) if plan.sample else None
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs.traced.values()]
    about = parts.metadata(job, plan, options) | {
        "inputs": inputs.described(),
        "start": _start(job, job_of, batch, prompt),
        "prompt": prompt,
    }
    if type(module).__name__ in WRAPS:
        about["trims"] = _trims(job)
        _check_own(model, batch, options, job, run_loop, inputs, about["trims"])
    return Extra(NAME, run_loop, [*shapes, jax.ShapeDtypeStruct((), np.int32), key], about)


def _decode(
    model: Model, job: Job, plan: programs.Plan, named: dict[str, jax.Array], ids, last, key
) -> list[jax.Array]:
    """Returns [the buffer of ids, length, rows with NaN behind the prompt, rows with NaN later]."""
    ids = ids.astype(jnp.int32)
    model_inputs = {k: named.get(k, x) for k, x in job.model_inputs.items()}
    carry = job.initial_carry() | {"ids": _buffer(ids, plan.total)}
    if key is not None:
        carry["rng"] = jax.random.wrap_key_data(key)
    encoder, _ = job.request.encoder or (None, None)
    source = None if encoder is None else named[encoder]
    logits, stays, carry = programs.prefill.__wrapped__(
        model, ids, model_inputs, source, carry, job.picker, last, plan, encoder
    )
    along = programs.extended({k: model_inputs[k] for k in job.along}, plan.total)
    nothing = jnp.zeros(len(job.request.ids), bool)
    broken = nothing if logits is None else jnp.isnan(logits).all(-1)
    carry = programs.decode.__wrapped__(model, carry, stays, along, last, last, job.picker, plan)
    return [carry["ids"], carry["at"], broken, carry["lost"]]


@dataclass(frozen=True)
class LoopParts:
    """Functions that both kinds of loops have in common."""

    refuse_features: Callable[[Model, Request, dict[str, Any]], None]
    refuse_several_programs: Callable[[Model, Job], None]
    plan: Callable[[Job], programs.Plan]
    metadata: Callable[[Job, programs.Plan, dict[str, Any]], dict[str, Any]]


def _request(
    model: Model, module: PreTrainedModel, batch: dict[str, np.ndarray], options: dict[str, Any]
) -> Request:
    """Returns the call of the common generate that a batch leads to."""
    named = dict(batch)
    inputs, named = named.pop("input_ids", None), {**options, **named}
    if type(module).__name__ in WRAPS:

        def capture(inputs: object, options: dict[str, Any]) -> None:
            raise Captured(inputs, options)

        try:
            run_own_generate(model, inputs, named, lambda _: capture)
        except Captured as call:
            inputs, named = call.args
    return build_request(module, prompts_of(module, inputs), dict(named))


def _inputs(job: Job, batch: dict[str, np.ndarray]) -> Inputs:
    """Returns which arrays are arguments of the program: those that it has as they are given.

    Positions that the model makes of masks and grids are constants, and so are those then.
    """
    encoder, source = job.request.encoder or ("", None)
    positions = [k for k in job.model_inputs if "position" in k and k not in batch]
    traced, layout = {}, {}
    for name, array in batch.items():
        value = source if name == encoder else job.model_inputs.get(name)
        is_text = name in TEXT and (name == encoder or np.array_equal(array, job.request.ids))
        is_float = array.dtype.kind == "f"
        as_it_is = value is not None and np.array_equal(value, array)
        if is_text or (as_it_is and (is_float or not positions)):
            traced[name] = array
        elif is_float:
            raise Unsupported(
                f"the saved loop of {job.model.source.name} with {name}",
                why="its generation changes it before the model reads it",
                do="generate without saving",
            )
        else:
            layout[name] = array
    return Inputs(traced, layout)


def _check_independent(
    job: Job, job_of: Callable[..., Job], inputs: Inputs, batch: dict[str, np.ndarray]
) -> None:
    """Raises Unsupported if anything but the ids themselves depends on them."""
    config = vars(job.model.source.module.config)
    special = [x for k, x in config.items() if "token_i" in k and type(x) is int]
    swapped = lambda x: np.where(np.isin(x, special) | np.isin(x ^ 1, special), x, x ^ 1)
    changed = {k: swapped(x) if k in TEXT and k in inputs.traced else x for k, x in batch.items()}
    values = lambda job: jax.tree.leaves(
        (job.picker, {k: x for k, x in job.model_inputs.items() if k not in inputs.traced})
    )
    pairs = [*zip(values(job), values(job_of(changed)), strict=True)]
    if not all(np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f") for a, b in pairs):
        raise Unsupported(
            "a saved loop with options that depend on the prompt",
            why="the program has them as numbers, which would be those of the example",
            do="leave them out, or generate without saving",
        )


def _start(
    job: Job, job_of: Callable[..., Job], batch: dict[str, np.ndarray], prompt: str
) -> list[list[int]] | None:
    """Returns the ids that the decoder starts from where none are given; None where they must be,
    as those of the example are others.
    """
    if prompt == "input_ids":
        return None
    ids = job_of({k: x for k, x in batch.items() if k != prompt}).request.ids
    return ids.tolist() if np.array_equal(ids, job.request.ids) else None


def _buffer(ids: jax.Array, total: int) -> jax.Array:
    buffer = jnp.zeros((ids.shape[0], total), jnp.int32)
    return jax.lax.dynamic_update_slice(buffer, ids, (0, 0))


def _trims(job: Job) -> list[int]:
    """Returns (tokens of the prompt, end, padding), which Whisper leaves out of its texts."""
    settings = job.request.settings
    ends, pad = settings._eos_token_tensor, settings._pad_token_tensor
    return [job.length, -1 if ends is None else int(ends[0]), -1 if pad is None else int(pad)]


def _check_own(
    model: Model,
    batch: dict[str, np.ndarray],
    options: dict[str, Any],
    job: Job,
    run_loop: Callable[..., list[Any]],
    inputs: Inputs,
    trims: list[int],
) -> None:
    """Raises Unsupported if a class's own generate gives something else than its loop."""
    named = {**batch, **options}
    out = generate(model, named.pop("input_ids", None), job.rng, None, None, named)
    key = None if job.rng is None else jax.random.key_data(job.rng)
    arrays = inputs.traced.values()
    ids, at, *_ = jax.jit(run_loop)(model.params, model.state, *arrays, np.int32(job.last), key)
    if not np.array_equal(trimmed(np.asarray(ids)[:, : int(at)], *trims), out):
        raise Unsupported(
            f"the saved loop of {model.source.name}",
            why="its own generate changes the tokens of its loop afterwards",
            do="generate without saving",
        )
