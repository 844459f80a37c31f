"""The end of a text: its maximum length, end tokens, and functions (ids, at) -> rows that end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from transformers import GenerationConfig
from transformers.generation import stopping_criteria

from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.request.logits_processors import attributes_key
from anyjax.torch import from_torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Strings:
    """Stop strings, looked for in the last tokens alone."""

    key: tuple
    criteria: stopping_criteria.StopStringCriteria = field(compare=False)

    def __call__(self, ids, at):
        count = min(self.criteria.maximum_token_len, ids.shape[1])
        place = at - count + jnp.arange(count)
        # An id that no tokenizer has: nothing matches before the text begins.
        tail = jnp.where(place >= 0, ids[:, jnp.maximum(place, 0)], jnp.iinfo(ids.dtype).max)
        source = from_torch(lambda ids: self.criteria(ids, None)).source
        return source({}, {}, (tail,), {})[0]  # lengths of texts: no integer of it is large


KINDS = (
    stopping_criteria.MaxLengthCriteria,
    stopping_criteria.EosTokenCriteria,
    stopping_criteria.StopStringCriteria,
)
# The padding token where rows that have ended are not padded.
UNPADDED = np.int32(np.iinfo(np.int32).min)


@dataclass(frozen=True)
class Stopping:
    """The conditions that end a text.

    Attributes:
      last: its maximum length.
      ends: the end tokens.
      pad: the token behind the end of a row.
      stops: functions (ids, at) -> rows that end.
    """

    last: int
    ends: np.ndarray
    pad: np.int32
    stops: tuple


def stopping(
    settings: GenerationConfig,
    criteria: list[stopping_criteria.StoppingCriteria],
    tokenizer: PreTrainedTokenizerBase,
) -> Stopping:
    """Returns the conditions by transformers' rules: criteria replace options of their kind.

    Raises:
      Unsupported: criteria without a corresponding option.
      WrongArguments: there are stop strings and no tokenizer.
    """
    for criterion in criteria:
        if type(criterion) not in KINDS:
            name = getattr(criterion, "__name__", type(criterion).__name__)
            raise Unsupported(
                f"the stopping criteria {type(criterion).__name__} ({name})",
                why="all tokens come from one program, which calls no Python at each of them",
                do="use stop_strings or eos_token_id, or write the loop: model.cache(length)",
            )
    of_kind = lambda kind: [x for x in criteria if type(x) is kind]
    lengths, end_criteria, strings = map(of_kind, KINDS)
    ends, pad = settings._eos_token_tensor, settings._pad_token_tensor
    if end_criteria:
        ends = np.concatenate([np.atleast_1d(x.eos_token_id) for x in end_criteria])
    if not strings and settings.stop_strings:
        if tokenizer is None:
            raise WrongArguments(
                "stop_strings without a tokenizer",
                why="they are strings, and the model knows tokens",
                do="pass tokenizer=...",
            )
        strings = [stopping_criteria.StopStringCriteria(tokenizer, settings.stop_strings)]
    return Stopping(
        last=min((x.max_length for x in lengths), default=settings.max_length),
        ends=np.asarray([-1] if ends is None else ends, np.int32),
        pad=UNPADDED if ends is None else np.int32(0 if pad is None else pad),
        stops=tuple(_strings(x) for x in strings),
    )


def _strings(criteria: stopping_criteria.StopStringCriteria) -> Any:
    attributes = {k: v for k, v in vars(criteria).items() if k != "vocab"}
    return Partial(Strings(attributes_key(attributes), criteria))
