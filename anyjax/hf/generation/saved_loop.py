"""The decoding loop of a loaded model: one program with the options that it was saved with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from anyjax import trees
from anyjax.calls.program import program
from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.request.checks import (
    check_mask,
    need_key,
    prompts,
    refuse_nan,
    refuse_traced,
)
from anyjax.model import Model
from anyjax.saved import SavedSource
from anyjax.saved.calls import misfit

NAME = "generate"  # of the program and its file


def is_loaded(model: Model) -> bool:
    """Returns whether a model came from ``anyjax.load``."""
    return isinstance(model.source, SavedSource)


@program()
def _loop(model: Model, *arrays: Any) -> list[Any]:
    source: Any = model.source
    return source.extras[NAME][1].call(model.params, model.state, *arrays)


def run_saved_loop(
    model: Model, input_ids: Any, rng: jax.Array | None, streamer: Any, options: dict[str, Any]
) -> Any:
    """Runs the saved loop: ``anyjax.generate`` of a loaded model.

    Raises:
      Unsupported: no loop was saved, or there is a streamer.
      WrongArguments: other prompts or options than the loop was saved for.
      MissingRng: the loop draws tokens, and there is no key.
    """
    source: Any = model.source
    if NAME not in source.extras:
        raise Unsupported(
            f"{model.source.name} was saved without its decoding loop",
            why="a loaded model has the programs that were saved",
            do="save it with one: model.save(folder, ids, generate=dict(max_new_tokens=32))",
        )
    if streamer is not None:
        raise Unsupported(
            "a streamer for a loaded model",
            why="its tokens come from one program, which calls no Python",
            do="leave it out, and read the ids when they are there",
        )
    metadata = source.extras[NAME][0]
    if "inputs" in metadata:
        return _run_batch_loop(model, metadata, input_ids, rng, options)
    options = dict(options)
    mask = options.pop("attention_mask", None)
    refuse_traced(model.params, {"input_ids": input_ids, "attention_mask": mask})
    new_tokens = _check_options(metadata, options)
    ids = prompts(input_ids).astype(np.int32)
    mask = _mask(metadata, ids, mask)
    rows = _row_filler(metadata, ids)
    length = ids.shape[1]
    last = length + new_tokens if metadata["last"] is None else metadata["last"]
    count = len(ids) * metadata["answers"]
    if last <= length:
        return jax.device_put(rows(ids)[:count])
    behind = [(0, 0), (0, metadata["length"] - length)]
    padded = [np.pad(rows(x), behind) for x in (ids, mask)]
    key = jax.random.key_data(need_key(rng)) if metadata["samples"] else None
    _check_key(key)
    return _tokens(model, *padded, *map(np.int32, (count, length, last)), key)[:count]


def _tokens(model: Model, *arrays: Any) -> jax.Array:
    """Runs the program; returns the ids up to their end."""
    source: Any = model.source
    result = source.execute(NAME, model.params, model.state, *arrays)
    out, at, broken, lost = _loop(model, *arrays) if result is None else result
    refuse_nan(broken)
    refuse_nan(lost, "after new tokens")
    return jax.device_put(np.asarray(out)[:, : int(at)])


def _run_batch_loop(
    model: Model, metadata: dict[str, Any], input_ids: Any, rng: Any, options: dict[str, Any]
) -> Any:
    """Runs a loop that was saved with pictures, sounds or an encoder.

    Raises:
      WrongArguments: a batch of other names, shapes or layout, or other options.
    """
    described, source = metadata["inputs"], model.source
    batch = {k: x for k, x in {**options, "input_ids": input_ids}.items() if trees.is_array(x)}
    options = {k: x for k, x in options.items() if k not in batch}
    refuse_traced(model.params, batch)
    arrays = {k: np.asarray(source.as_array(x)) for k, x in batch.items()}
    _settle_mask(described, arrays)
    if (start := metadata["start"]) is not None and metadata["prompt"] in described:
        arrays.setdefault(metadata["prompt"], np.asarray(start))
    if why := misfit({"inputs": described}, [*arrays.values()], [*arrays]):
        raise WrongArguments(
            f"{model.source.name} was saved to generate from another batch",
            why=why,
            do="save the model again with an example of this batch: "
            "model.save(folder, **batch, generate=dict(...))",
        )
    new_tokens = _check_options(metadata, options)
    if not new_tokens:
        return jax.device_put(np.asarray(arrays.get(metadata["prompt"], start)))
    key = jax.random.key_data(need_key(rng)) if metadata["samples"] else None
    _check_key(key)
    traced = [arrays[k] for k, about in described.items() if not isinstance(about, dict)]
    ids = _tokens(model, *traced, np.int32(metadata["length"] + new_tokens), key)
    return (
        jax.device_put(trimmed(np.asarray(ids), *metadata["trims"])) if "trims" in metadata else ids
    )


def trimmed(ids: np.ndarray, length: int, end: int, pad: int) -> np.ndarray:
    """Returns texts without prompt, end and padding, padded to the longest, as Whisper gives them.

    Example:
      >>> trimmed(np.array([[1, 5, 6, 2], [1, 7, 2, 0]]), 1, 2, 0).tolist()
      [[5, 6], [7, 0]]
    """
    rows = []
    for row in ids[:, length:]:
        count = len(row)
        while count and row[count - 1] == pad:
            count -= 1
        rows.append(row[: count - (count > 0 and row[count - 1] == end)])
    longest = max(map(len, rows), default=0)
    return np.stack([np.pad(x, (0, longest - len(x)), constant_values=pad) for x in rows])


def _settle_mask(described: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Leaves out a mask that hides nothing, or puts one in, as the loop was saved."""
    name = "attention_mask"
    if name in arrays and name not in described and arrays[name].all():
        del arrays[name]
    about = described.get(name)
    if name not in arrays and isinstance(about, dict) and np.all(about["values"]):
        arrays[name] = np.asarray(about["values"])


def _check_options(metadata: dict[str, Any], options: dict[str, Any]) -> int:
    """Returns the number of new tokens.

    Raises:
      WrongArguments: another option differs from the saved ones.
    """
    settings = metadata["settings"] | metadata["options"]
    most = metadata["new_tokens"]
    new_tokens = options.pop("max_new_tokens", None)
    wrong = [k for k, v in options.items() if v is not None and _json_value(v) != settings.get(k)]
    is_valid = (
        isinstance(new_tokens, (int, np.integer)) and most is not None and 0 <= new_tokens <= most
    )
    if new_tokens is not None and not is_valid:
        wrong.append("max_new_tokens")
        options["max_new_tokens"] = new_tokens
    if wrong:
        shown = ", ".join(f"{k}={v!r}" for k, v in metadata["options"].items())
        raise WrongArguments(
            f"{', '.join(f'{k}={options[k]!r}' for k in wrong)} for a loaded model",
            why=f"its loop was saved with {shown or 'the defaults of the model'}",
            do="leave it out (fewer max_new_tokens are possible), or save the model again: "
            "model.save(folder, ids, generate=dict(...))",
        )
    return most if new_tokens is None else new_tokens


def _json_value(value: object) -> Any:
    """Returns an option as JSON would read it back."""
    return np.asarray(value).tolist() if hasattr(value, "shape") or type(value) is tuple else value


def _row_filler(metadata: dict[str, Any], ids: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that repeats rows of an array up to the program's number of rows."""
    batch, length = ids.shape
    # a program for any number of rows takes at least two
    rows = max(batch, 2) if metadata["batch"] is None else metadata["batch"]
    fits = batch <= rows if metadata["fewer"] else batch == rows
    if not fits or not (
        length == metadata["length"] or (metadata["shorter"] and length < metadata["length"])
    ):
        most = f"at most {rows}" if metadata["fewer"] else rows
        most = "any number of" if metadata["batch"] is None else most
        upto = "at most " if metadata["shorter"] else ""
        raise WrongArguments(
            f"input_ids are [{batch}, {length}]",
            why=f"the loop was saved for {most} rows of {upto}{metadata['length']} tokens",
            do="split or pad the prompts, or save the model again with an example of this size",
        )
    row_indices = np.arange(rows) % batch  # surplus rows repeat prompts
    return lambda x: np.repeat(x[row_indices], metadata["answers"], 0)


def _mask(metadata: dict[str, Any], ids: np.ndarray, mask: object) -> np.ndarray:
    """Returns 1 for tokens and 0 for padding; by default padding tokens that are no end tokens."""
    if mask is None:
        pad = metadata["pad"]
        return (ids != pad).astype(np.int32) if pad is not None else np.ones_like(ids)
    mask = np.asarray(check_mask(mask, ids))
    if not metadata["masked"] and not mask.all():
        raise WrongArguments(
            "attention_mask has zeros",
            why="the model takes no mask",
            do="give prompts of one length",
        )
    return mask.astype(np.int32)


def _check_key(key: jax.Array | None) -> None:
    if key is not None and key.shape != (2,):
        raise WrongArguments(
            f"rng is a key of {list(key.shape)} numbers",
            why="the loop was saved for one key of jax.random.key(seed)",
            do="give that kind of key",
        )
