"""When a text ends: its greatest length, end tokens, and functions (ids, at) -> which rows end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from transformers.generation import stopping_criteria as theirs

from tojax.errors import Unsupported, WrongArguments
from tojax.hf.generation.request.logits_processors import content
from tojax.torch import from_torch


@dataclass(frozen=True)
class Strings:
    """The criteria on the last tokens alone, which are all that it looks at."""

    key: tuple
    criteria: Any = field(compare=False)

    def __call__(self, ids, at):
        count = min(self.criteria.maximum_token_len, ids.shape[1])
        place = at - count + jnp.arange(count)
        # An id that no tokenizer has: nothing matches before the text begins.
        tail = jnp.where(place >= 0, ids[:, jnp.maximum(place, 0)], jnp.iinfo(ids.dtype).max)
        return from_torch(lambda ids: self.criteria(ids, None)).apply({}, tail)


KINDS = (theirs.MaxLengthCriteria, theirs.EosTokenCriteria, theirs.StopStringCriteria)
# What stands for the padding token where a row that has ended is not padded.
UNPADDED = np.int32(np.iinfo(np.int32).min)


@dataclass(frozen=True)
class Stopping:
    """When a text ends.

    Attributes:
      last: its length at most.
      ends: the end tokens.
      pad: what a row that has ended is filled with.
      stops: functions (ids, at) -> which rows end.
    """

    last: int
    ends: np.ndarray
    pad: np.int32
    stops: tuple


def stopping(settings: Any, given: list[Any], tokenizer: Any) -> Stopping:
    """When a text ends by transformers' rules: criteria replace options of their kind.

    Raises:
      Unsupported: criteria of another kind than the options have.
      WrongArguments: there is no tokenizer to tell what the tokens spell.
    """
    for criteria in given:
        if type(criteria) not in KINDS:
            name = getattr(criteria, "__name__", type(criteria).__name__)
            raise Unsupported(
                f"the stopping criteria {type(criteria).__name__} ({name})",
                why="all tokens come from one program, which calls no Python at each of them",
                do="use stop_strings or eos_token_id, or write the loop: model.cache(length)",
            )
    of = lambda kind: [x for x in given if type(x) is kind]
    lengths, own, strings = map(of, KINDS)
    ends, pad = settings._eos_token_tensor, settings._pad_token_tensor
    if own:
        ends = np.concatenate([np.atleast_1d(x.eos_token_id) for x in own])
    if not strings and settings.stop_strings:
        if tokenizer is None:
            raise WrongArguments(
                "stop_strings without a tokenizer",
                why="they are strings, and the model knows tokens",
                do="pass tokenizer=...",
            )
        strings = [theirs.StopStringCriteria(tokenizer, settings.stop_strings)]
    return Stopping(
        last=min((x.max_length for x in lengths), default=settings.max_length),
        ends=np.asarray([-1] if ends is None else ends, np.int32),
        pad=UNPADDED if ends is None else np.int32(0 if pad is None else pad),
        stops=tuple(_strings(x) for x in strings),
    )


def _strings(criteria: Any) -> Any:
    known = {k: v for k, v in vars(criteria).items() if k != "vocab"}
    return Partial(Strings(content(known), criteria))
