"""Tokenizers of a pipeline: what they gave for the prompts of a call is an argument of its program.

Before a call the pipeline's own code runs up to its denoising loop with the real prompts, and the
results of its tokenizers are recorded. The program is traced with other texts in their place, and
its tokenizers give back the recorded results, as arrays of the trace.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import torch

from anyjax.errors import Unsupported
from anyjax.torch.core.lifting import inner
from anyjax.typing import PyTree

FITS = "the prompt fits"  # the result of a call that only asks whether another one cut the prompt
DECODES = {"decode", "batch_decode", "convert_ids_to_tokens"}  # text that comes of numbers
TEXT = "prompt"  # in the place of a prompt
Record = tuple[str, Any]
_RECORDS: contextvars.ContextVar[list[Record] | None] = contextvars.ContextVar(
    "records", default=None
)


class Encoded(BaseException):
    """The pipeline's code has come to its denoising loop: all prompts are tokenized."""


@contextlib.contextmanager
def recording() -> Iterator[list[Record]]:
    """Records what tokenizers give until the denoising loop begins."""
    records: list[Record] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)


def run(function: Callable[[], Any]) -> Any:
    """Returns what the pipeline's code returns, None where it ends with its prompts tokenized."""
    if (records := _RECORDS.get()) is not None:
        records.clear()
    try:
        return function()
    except Encoded:  # not further up: its frames hold tensors of the trace
        return None


def encoded() -> None:
    """Ends a run that records."""
    if _RECORDS.get() is not None:
        raise Encoded


def has_text(value: PyTree) -> bool:
    """Returns whether there are strings in it.

    Example:
      >>> has_text(["a cat"]), has_text(None)
      (True, False)
    """
    return any(isinstance(x, str) for x in jax.tree.leaves(value))


def placeholder(value: PyTree) -> Any:
    """Returns another text in the place of each that is not empty.

    Example:
      >>> placeholder(["a cat", "", None])
      ['prompt', '', None]
    """
    return jax.tree.map(lambda x: TEXT if isinstance(x, str) and x else x, value)


class Tokenizer:
    """A pipeline's tokenizer or processor in a trace; ``results`` are those of the whole call, in
    order: (name of the tokenizer's method, result).
    """

    def __init__(self, name: str, tokenizer: Any, results: Iterator[Record]):
        self._name, self._tokenizer, self._results = name, tokenizer, results
        self._last: tuple[tuple, dict[str, Any], int] = (), {}, 0

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> Any:
        return self._result("__call__", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._tokenizer, name)
        if not callable(value) or isinstance(value, type):
            return value
        return lambda *args, **kwargs: self._result(name, args, kwargs)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def _result(self, method: str, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        function: Callable[..., Any] = getattr(self._tokenizer, method)
        records, name = _RECORDS.get(), f"{self._name}.{method}"
        if records is None and method in DECODES:
            return self._next(name)
        if records is None:
            out = function(*args, **kwargs)  # its class, for what it holds is that of another text
            if not _counts(out):
                return out
            result = self._next(name)
            if isinstance(result, str) and result == FITS:  # no values: whoever reads them, fails
                return _like(out, {key: _valueless(len(x)) for key, x in out.items()})
            return _like(out, result)
        out = function(*args, **kwargs)
        if method in DECODES or _counts(out):
            result = _plain(out)
            records.append((name, FITS if self._fits(args, kwargs, result) else result))
            ids = result.get("input_ids") if isinstance(result, dict) else None
            self._last = args, kwargs, ids.shape[-1] if isinstance(ids, np.ndarray) else 0
        return out

    def _fits(self, args: tuple, kwargs: dict[str, PyTree], out: PyTree) -> bool:
        """Returns whether the call before gave the same texts, padded to more tokens than they
        have: pipelines compare the two numbers, to warn where a prompt is cut.
        """
        last_args, last_kwargs, length = self._last
        longest = kwargs.get("padding") == "longest" and not kwargs.get("truncation")
        padded = last_kwargs.get("padding") == "max_length"
        if not (longest and padded and args == last_args):
            return False
        return bool(out["input_ids"].shape[-1] < length)

    def _next(self, name: str) -> Any:
        recorded, result = next(self._results, ("", None))
        if recorded != name:
            raise Unsupported(
                f"the pipeline calls {name} where it called {recorded or 'nothing'} before",
                why="the texts of its prompts decide which tokenizers it calls",
                do="give prompt_embeds= and the like in the place of the prompt",
            )
        return result


def _valueless(rows: int) -> torch.Tensor:
    """Returns a tensor ``[rows, 1]`` that can be moved and has no values."""
    tensor = torch.empty((rows, 1), device="meta")
    vars(tensor)["to"] = lambda *args, **kwargs: tensor
    return tensor


def _counts(out: PyTree) -> bool:
    """Returns whether a result has more than text in it."""
    leaves = jax.tree.leaves(_plain(out))
    return any(not isinstance(x, (str, bool, type(None))) for x in leaves)


def _plain(out: PyTree) -> Any:
    """Returns a result of a tokenizer in plain containers."""
    if isinstance(out, Mapping):
        return {key: _plain(value) for key, value in out.items()}
    if isinstance(out, torch.Tensor):
        return np.array(inner(out))  # no tensor of a trace, which is over soon
    return _plain(out.data) if hasattr(out, "data") else out


def _like(out: PyTree, result: PyTree) -> Any:
    """Returns the recorded result in the class of ``out``."""
    if hasattr(out, "data") and not isinstance(out, torch.Tensor):
        out.data = result
        return out
    return result
