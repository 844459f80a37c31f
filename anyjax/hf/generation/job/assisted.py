"""The drafts of a call of generate: from a smaller model, or from the text itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np

from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.decode import assisted_programs, programs, static_cache
from anyjax.hf.generation.decode.programs import Plan
from anyjax.hf.generation.job import strategy
from anyjax.hf.generation.job.job import DecodeUntil, Job
from anyjax.hf.generation.request.request import Request
from anyjax.model import Model
from anyjax.typing import PyTree

# All positions of a block are computed, right or wrong, so fewer than transformers' 20, which stops
# where the draft is unsure.
COUNT, THRESHOLD, NGRAM = 5, 0.4, 2


@dataclass
class Drafts:
    """The source of drafts.

    Attributes:
      count: tokens of a draft, at most.
      ngram: the longest run of tokens that is looked up, where no model drafts.
      threshold: the probability below which the draft's model stops.
      job: the smaller model's side of the call, None where the text is looked up.
    """

    count: int
    ngram: int = 0
    threshold: float = 0.0
    job: Job | None = None

    def begin(
        self,
        job: Job,
        plan: Plan,
        carry: dict[str, PyTree],
        stays: object,
        along: dict[str, PyTree],
        decode_until: DecodeUntil,
    ) -> tuple[DecodeUntil, dict[str, Any]]:
        """Returns a decoder that reads drafts, and the carry with what it needs."""
        draft, carry = self.prefill(job, plan, carry)
        decode_drafted = partial(self.decode, job, draft, stays, along, plan)
        end = job.max_positions - self.count + 1
        return with_drafts(decode_drafted, decode_until, end), carry

    def prefill(self, job: Job, plan: Plan, carry: dict[str, PyTree]) -> tuple[Any, dict]:
        """Returns (the smaller model with its arguments, or None; the carry with its state).

        Raises:
          Unsupported: a state cannot go back to before a wrong draft.
        """
        if not static_cache.rewindable(carry["state"]) or not strategy.is_exact(
            strategy.Decoding.BLOCKS, job, plan
        ):
            refuse_drafts(job.model)
        carry = carry | {"blocks": np.int32(0), "draft": {}}
        if self.job is None:
            return None, carry
        draft_plan = next(strategy.plans(self.job), None)
        if draft_plan is None or not draft_plan.cached:
            refuse_drafts(self.job.model)
        _, stays, draft_carry = self.job.prefill(draft_plan)
        if not static_cache.rewindable(draft_carry["state"]):
            refuse_drafts(self.job.model)
        draft = {
            "params": self.job.model.params,
            "buffers": self.job.model.state,
            "stays": stays,
            "along": programs.extended(self.job.along, self.job.plan.total),
            "threshold": np.float32(self.threshold),
        }
        return draft, carry | {"draft": draft_carry["state"]}

    def decode(self, job: Job, draft: Any, stays, along, plan: Plan, carry, until: int):
        """Runs the program with drafts up to position ``until`` or later."""
        bounds = np.int32(until), np.int32(job.last)
        run = assisted_programs.program_of(
            job.model, None if self.job is None else self.job.model.source
        )
        return run(
            job.model, draft, carry, stays, along, *bounds, job.picker, plan, self.count, self.ngram
        )


def with_drafts(decode_drafted: Callable, decode_plain: Callable, end: int) -> Callable:
    """Returns a function that decodes with drafts up to ``end``, and without them from there on.

    There drafts would go beyond the model's table of positions, and its NaN would get into the
    cache.
    """

    def decode_until(carry: dict[str, PyTree], until: int) -> dict[str, Any]:
        if int(carry["at"]) < end:
            carry = decode_drafted(carry, min(until, end))
        return carry if until <= end else decode_plain(carry, until)

    return decode_until


def refuse_drafts(model: Model) -> NoReturn:
    """Raises Unsupported for a model whose states cannot go back."""
    raise Unsupported(
        f"drafts with {model.source.name}",
        why="it does not keep keys and values by position, so it cannot take back tokens that were "
        "drafted wrongly",
        do="leave assistant_model and prompt_lookup_num_tokens out",
    )


def drafts_of(
    model: Model,
    assistant: Model | None,
    request: Request,
    options: dict[str, Any],
    request_of: Callable[[Model], Request],
) -> Drafts | None:
    """Returns the source of drafts in this call, None for no drafts.

    Args:
      model: the model that reads the drafts.
      assistant: the smaller model, or None.
      request: the call of ``model``.
      options: the options of the call.
      request_of: returns the same call of another model.

    Raises:
      Unsupported, WrongArguments: options that exclude each other.
    """
    settings = request.settings
    if assistant is None and settings.prompt_lookup_num_tokens is None:
        return None
    conditions = {
        "num_beams": settings.num_beams > 1,
        "guidance_scale": settings.guidance_scale not in (None, 1),
        "use_cache=False": not settings.use_cache,
    }
    if conflicts := [k for k, v in conditions.items() if v]:
        name = "prompt_lookup_num_tokens" if assistant is None else "assistant_model"
        raise Unsupported(
            f"{name} together with {conflicts[0]}",
            why="what is drafted is one text for each row, in a cache of its own",
            do="leave one of them out",
        )
    if assistant is None:
        return _checked_drafts(
            settings.prompt_lookup_num_tokens, settings.max_matching_ngram_size or NGRAM
        )
    _check_assistant(model, assistant)
    own_config = cast(Any, assistant.source).module.generation_config
    configs = (SimpleNamespace(**options), options.get("generation_config"), own_config)
    values_of = lambda name: [v for x in configs if (v := getattr(x, name, None)) is not None]
    count = [*values_of("num_assistant_tokens"), COUNT][0]
    drafts = _checked_drafts(count)
    drafts.threshold = float([*values_of("assistant_confidence_threshold"), THRESHOLD][0])
    draft_request = request_of(assistant)
    draft_request.processors.clear()  # tokens are picked as the large model picks them
    draft_request.ids, draft_request.settings.stop_strings = request.ids, None
    lengths = [getattr(x, "max_length", 0) for x in request.criteria]
    draft_request.criteria = []
    draft_request.settings.max_length = max(settings.max_length, *lengths, 0) + count
    drafts.job = Job(assistant, draft_request)
    return drafts


def _checked_drafts(count: int, ngram: int = 0) -> Drafts:
    if count < 1 or ngram < 0:
        raise WrongArguments(
            f"drafts of {count} tokens",
            why="there is nothing to read at once",
            do="draft at least one token, or leave assistant_model out",
        )
    return Drafts(int(count), int(ngram))


def _check_assistant(model: Model, assistant: Model) -> None:
    """Raises WrongArguments or Unsupported for a model that cannot draft for ``model``."""
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
