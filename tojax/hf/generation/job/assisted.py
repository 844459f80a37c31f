"""Who drafts tokens in a call of generate, worked out before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tojax.errors import Unsupported, WrongArguments
from tojax.hf.generation.decode import assisted_programs, programs
from tojax.hf.generation.decode import static_cache as caches
from tojax.hf.generation.decode.programs import Plan
from tojax.hf.generation.job import strategy
from tojax.hf.generation.request.request import Request
from tojax.model import Model

# All positions of a block are computed, whether drafts are right or not, so fewer than the 20 of
# transformers, which stops where the draft is unsure.
COUNT, THRESHOLD, NGRAM = 5, 0.4, 2


@dataclass
class Drafts:
    """What drafts.

    Attributes:
      count: tokens of a draft, at most.
      ngram: the longest run of tokens that is looked up, where no model drafts.
      threshold: the probability below which the draft's model stops.
      job: the smaller model's side of the call, None where the text is looked up.
    """

    count: int
    ngram: int = 0
    threshold: float = 0.0
    job: Any = None

    def start(self, job: Any, plan: Plan, carry: dict[str, Any]) -> tuple[Any, dict]:
        """(the smaller model with its arguments, or None; the carry with its state).

        Raises:
          Unsupported: a state that cannot go back to where the drafts were wrong.
        """
        if not caches.rewindable(carry["state"]) or not strategy.holds("blocks", job, plan):
            refuse(job.model)
        carry = carry | {"blocks": np.int32(0), "draft": {}}
        if self.job is None:
            return None, carry
        own = next(strategy.plans(self.job), None)
        if own is None or not own.cached:
            refuse(self.job.model)
        _, stays, begun = self.job.prefill(own)
        if not caches.rewindable(begun["state"]):
            refuse(self.job.model)
        draft = {
            "params": self.job.model.params,
            "buffers": self.job.model.state,
            "stays": stays,
            "along": programs.extended(self.job.along, self.job.plan.total),
            "threshold": np.float32(self.threshold),
        }
        return draft, carry | {"draft": begun["state"]}

    def decode(self, job: Any, draft: Any, stays, along, plan: Plan, carry, until: int):
        """The program of ``speculate``."""
        bounds = np.int32(until), np.int32(job.last)
        run = assisted_programs.program_of(
            job.model, None if self.job is None else self.job.model.source
        )
        return run(
            job.model, draft, carry, stays, along, *bounds, job.picker, plan, self.count, self.ngram
        )


def interrupted(drafted: Callable, plain: Callable, end: int) -> Callable:
    """``drafted(carry, until)``, and ``plain`` behind ``end``: drafts would go beyond the model's
    table of positions, and what is NaN there would spoil what is attended to.
    """

    def run(carry: dict[str, Any], until: int) -> dict[str, Any]:
        if int(carry["at"]) < end:
            carry = drafted(carry, min(until, end))
        return carry if until <= end else plain(carry, until)

    return run


def refuse(model: Model):
    """Raises Unsupported for a model whose states cannot be taken back."""
    raise Unsupported(
        f"drafts with {model.source.name}",
        why="it does not keep keys and values by position, so it cannot take back tokens that were "
        "drafted wrongly",
        do="leave assistant_model and prompt_lookup_num_tokens out",
    )


def wanted(
    model: Model,
    assistant: Model | None,
    asked: Request,
    options: dict[str, Any],
    again: Callable[[Model], Request],
    job: Callable[[Model, Request], Any],
) -> Drafts | None:
    """What drafts in this call, None for nothing.

    Args:
      model, asked: the model and what is asked of it.
      assistant: the smaller model, or None.
      options: those of the call.
      again: what is asked of another model.
      job: the call for another model.

    Raises:
      Unsupported, WrongArguments: options that do not go together.
    """
    settings = asked.settings
    if assistant is None and settings.prompt_lookup_num_tokens is None:
        return None
    whys = {
        "num_beams": settings.num_beams > 1,
        "guidance_scale": settings.guidance_scale not in (None, 1),
        "use_cache=False": not settings.use_cache,
    }
    if said := [k for k, v in whys.items() if v]:
        name = "prompt_lookup_num_tokens" if assistant is None else "assistant_model"
        raise Unsupported(
            f"{name} together with {said[0]}",
            why="what is drafted is one text for each row, in a cache of its own",
            do="leave one of them out",
        )
    if assistant is None:
        return _some(settings.prompt_lookup_num_tokens, settings.max_matching_ngram_size or NGRAM)
    _check(model, assistant)
    own = cast(Any, assistant.source).module.generation_config
    places = (SimpleNamespace(**options), options.get("generation_config"), own)
    said_of = lambda name: [v for x in places if (v := getattr(x, name, None)) is not None]
    count = [*said_of("num_assistant_tokens"), COUNT][0]
    drafts = _some(count)
    drafts.threshold = float([*said_of("assistant_confidence_threshold"), THRESHOLD][0])
    second = again(assistant)
    second.processors.clear()  # tokens are picked as the large model picks them
    second.ids, second.settings.stop_strings = asked.ids, None
    lengths = [getattr(x, "max_length", 0) for x in asked.criteria]
    second.criteria, second.settings.max_length = [], max(settings.max_length, *lengths, 0) + count
    drafts.job = job(assistant, second)
    return drafts


def _some(count: int, ngram: int = 0) -> Drafts:
    if count < 1 or ngram < 0:
        raise WrongArguments(
            f"drafts of {count} tokens",
            why="there is nothing to read at once",
            do="draft at least one token, or leave assistant_model out",
        )
    return Drafts(int(count), int(ngram))


def _check(model: Model, assistant: Model) -> None:
    """Raises for what cannot draft for ``model``."""
    configs = [cast(Any, m.source).module.config for m in (model, assistant)]
    sizes = [c.get_text_config().vocab_size for c in configs]
    if sizes[0] != sizes[1]:
        raise WrongArguments(
            f"assistant_model has {sizes[1]} tokens, the model {sizes[0]}",
            why="what it drafts are tokens of the model",
            do="use a smaller model of the same family, with the same tokenizer",
        )
    if configs[0].is_encoder_decoder != configs[1].is_encoder_decoder:
        raise Unsupported(
            "assistant_model with an encoder on one side only",
            why="both read the same inputs",
            do="use a smaller model of the same family",
        )
