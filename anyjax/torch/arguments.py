"""Mistakes in a call, told before or instead of what torch or JAX would say about them."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import re
from collections.abc import Iterator
from typing import get_args

from anyjax.errors import AnyjaxError, ForwardFailed, WrongArguments
from anyjax.torch.core import diagnostics
from anyjax.torch.state.torchscript import FAILED

UNKNOWN = re.compile(r"\b(Sizes|Group|Padded|Shape)\b")  # those of numbers
KEYS = {"rngs", "rng_key", "prng_key", "dropout_rng"}  # what neighbours call ``rng``
TRACED = re.compile(r"<torch\.\w+ \[[\d, ]*\], traced>")  # how a traced tensor shows itself


def check(signature: inspect.Signature, args: tuple, kwargs: dict) -> None:
    """Raises WrongArguments where forward would not take the call, or would swallow a misspelt
    name.
    """
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise _wrong(str(error), signature, kwargs) from None
    names = list(signature.parameters)
    accepted = {*names, *_declared(signature)}
    for name in kwargs:
        near = name in KEYS or difflib.get_close_matches(name, names, 1, 0.85)
        if name not in accepted and near:
            raise _wrong(f"forward would swallow the unknown argument {name!r}", signature, kwargs)


def _declared(signature: inspect.Signature) -> set[str]:
    """Returns the names that ``**kwargs: Unpack[...]`` lists."""
    listed = [p.annotation for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    return {
        name
        for annotation in listed
        for kind in get_args(annotation)
        for name in getattr(kind, "__annotations__", ())
    }


def _wrong(what: str, signature: inspect.Signature, kwargs: dict) -> WrongArguments:
    parameters = signature.parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    odd = [k for k in kwargs if k not in names]
    near = {k: difflib.get_close_matches(k, names, 1, 0.6) for k in odd if k not in KEYS}
    hints = [f"{matches[0]!r} instead of {k!r}" for k, matches in near.items() if matches]
    hints += [f"'rng' instead of {k!r}: rng=jax.random.key(0)" for k in odd if k in KEYS]
    return WrongArguments(
        what,
        why=f"forward takes ({', '.join(names)})",
        do=f"did you mean {', '.join(hints)}?" if hints else "give its arguments by these names",
    )


OPERANDS = "unsupported operand type"


@contextlib.contextmanager
def explained(trace) -> Iterator[None]:
    """Turns torch's complaints about missing memory and unknown sizes into the DataDependent error
    that they mean.
    """
    try:
        yield
    except TypeError as error:
        if TRACED.search(str(error)) and not isinstance(error, AnyjaxError):
            raise trace.data_dependent("forward", [], error) from error
        if trace.raised and OPERANDS in str(error):  # Python asks the other side
            raise trace.raised from error
        if not trace.unknown or isinstance(error, AnyjaxError) or not UNKNOWN.search(str(error)):
            raise
        raise trace.unknown[-1].error() from error
    except RuntimeError as error:
        if trace.raised and FAILED in str(error):
            raise trace.raised from error
        if isinstance(error, ForwardFailed) or not diagnostics.reads_memory(error):
            raise
        raise trace.data_dependent("forward", [], error) from error
