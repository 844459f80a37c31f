"""transformers' stop strings on a buffer of fixed length: functions (ids, at) -> which rows end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial
from transformers.generation.stopping_criteria import StopStringCriteria

from tojax.errors import WrongArguments
from tojax.hf.processors import content
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


def stop_strings(strings: Any, tokenizer: Any) -> tuple:
    """The functions for ``strings``, none for None.

    Raises:
      WrongArguments: there is no tokenizer to tell what the tokens spell.
    """
    if not strings:
        return ()
    if tokenizer is None:
        raise WrongArguments(
            "stop_strings without a tokenizer",
            why="they are strings, and the model knows tokens",
            do="pass tokenizer=...",
        )
    criteria = StopStringCriteria(tokenizer=tokenizer, stop_strings=strings)
    known = {k: v for k, v in vars(criteria).items() if k != "vocab"}
    return (Partial(Strings(content(known), criteria)),)
