"""One call of generate: its buffers, the way of decoding, what it returns."""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import Any

import jax
import numpy as np
from transformers.generation import utils as theirs

from tojax import warn_once
from tojax.errors import SlowGeneration, Unsupported, WrongArguments
from tojax.hf.generation.decode import beams as search
from tojax.hf.generation.decode import guidance, long_rope, model_steps, programs
from tojax.hf.generation.decode.growing import Literal
from tojax.hf.generation.decode.programs import Picker, Plan
from tojax.hf.generation.job import assisted, strategy
from tojax.hf.generation.request import logits_processors
from tojax.hf.generation.request.checks import refuse_nan
from tojax.hf.generation.request.request import PROMPT_ONLY, Request
from tojax.hf.generation.request.stopping import stopping
from tojax.model import Model
from tojax.multiprocess import check_same, values
from tojax.parallel import batches
from tojax.parallel.plans.axes import sequence_axis

# Prompts and buffers are rounded up to a multiple of these, so that few programs serve many sizes.
PROMPT_STEP, TOTAL_STEP, KEPT_STEP = 16, 64, 16


class Job:
    """One call of generate.

    Attributes:
      length, last: positions of the prompt, and of the longest text.
      given: further arguments of the model that are traced.
      along: those of them that have one entry per position.
      mesh: where the model lies, None for a single device.
      plan: what programs are compiled for.
      picker: how tokens are picked.
      drafts: who drafts tokens, None where nobody does.
      renewal: the length of the text at which the cache is made anew, None for never.
    """

    def __init__(
        self,
        model: Model,
        asked: Request,
        rng: Any = None,
        streamer: Any = None,
        tokenizer: Any = None,
        guesses: assisted.Drafts | None = None,
    ):
        self.model, self.asked, self.rng, self.streamer = model, asked, rng, streamer
        self.mesh = batches.mesh_of(model.params)
        self.drafts = guesses
        settings = asked.settings
        ending = stopping(settings, asked.criteria, tokenizer)
        self.length, self.last = asked.ids.shape[1], ending.last
        self.given, fixed = model_steps.split(asked.given)
        self.along = {k: v for k, v in self.given.items() if k in programs.follows(model)}
        beams = _beams(settings)
        self.guide = guidance.asked_for(asked, beams)
        rest = asked.processors[1:] if self.guide else asked.processors
        chain = logits_processors.chain(rest, len(asked.ids), asked.source)
        self.picker = Picker(chain, ending.stops, ending.ends, ending.pad)
        self.answers = bool(settings.return_dict_in_generate)
        room = _round(self.last - self.length, KEPT_STEP)
        kept = lambda wanted: room if self.answers and wanted else 0
        beside = max(0, self.guide["ids"].shape[1] - self.length) if self.guide else 0
        beside += guesses.count if guesses else 0
        self.plan = Plan(
            total=_round(self.last + beside, TOTAL_STEP),
            cached=bool(settings.use_cache),
            fixed=fixed,
            sample=rng is not None,
            scores=kept(settings.output_scores),
            logits=kept(settings.output_logits),
            beams=beams,
        )
        self.renewal = self._renewal()
        if streamer is not None and self.plan.beams:
            raise Unsupported(
                "streamer together with num_beams",
                why="which beam wins shows at the end",
                do="leave one of them out",
            )

    def _renewal(self) -> int | None:
        module = self.model.source.module
        at = long_rope.renewed_at(module, self.length, self.last) if self.plan.cached else None
        own = {"a draft": self.drafts, "guidance_scale": self.guide}
        own |= dict.fromkeys(sorted(PROMPT_ONLY & {*self.asked.given}), True)
        if at and (found := [name for name, there in own.items() if there]):
            long_rope.refuse(module, found[0], "leave it out, or end before (max_new_tokens)")
        return at

    def run(self) -> Any:
        """The ids, prompt included, or transformers' output."""
        if self.mesh is not None and self.mesh.is_multi_process:
            told = {"prompts": self.asked.source, "rng": self.rng, "length": self.last}
            check_same(
                {k: x for k, x in {**told, **self.given}.items() if x is not None},
                do="give all prompts in every process, or take a model without a mesh in each",
            )
        if self.streamer is not None:
            self.streamer.put(_tokens(self.asked.ids))
        if self.last <= self.length:
            carry = self.start()
        else:
            plan = next(strategy.plans(self), None)
            if self.guide and (plan is None or not plan.cached):
                raise Unsupported(
                    f"the option guidance_scale with {self.model.source.name}",
                    why="its states do not have a fixed shape",
                    do="leave guidance_scale out",
                )
            if self.drafts and (plan is None or not plan.cached):
                assisted.refuse(self.model)
            carry = self.literal() if plan is None else self.decode(plan, self.drafts)
        if self.streamer is not None:
            self.streamer.end()
        return self.result(carry)

    def start(self, filler: int = 0) -> dict[str, Any]:
        """What every way of decoding begins with; ``filler`` stands behind the prompt."""
        ids = np.full((len(self.asked.ids), self.plan.total), filler, np.int32)
        ids[:, : self.length] = self.asked.ids
        carry: dict[str, Any] = {
            "at": np.int32(self.length),
            "done": np.zeros(len(ids), bool),
            "lost": np.zeros(len(ids), bool),
            "start": np.int32(self.length),
        }
        if self.rng is not None:
            carry["rng"] = self.rng
        if self.plan.beams:
            penalty = self.asked.settings.length_penalty
            carry |= search.start(self.plan.beams, ids, self.length, penalty)
        if self.guide:
            carry["guide"] = self.guide
        return carry | {"ids": ids}

    def prefill(self, plan: Plan, filler: int = 0, carry: dict[str, Any] | None = None):
        """(logits, arguments that stay, carry); ``filler`` stands behind a padded prompt."""
        carry = self.start() if carry is None else carry
        length = int(carry["at"])
        ids = np.asarray(carry["ids"])[:, :length]
        given = self.given | programs.extended(self.along, length)
        if plan.padded:
            count = _round(length, math.lcm(PROMPT_STEP, self.divided))
            count = min(count, self.limit) if length <= self.limit else count
            ids = pad_right(ids, count, filler)
            given = {k: pad_right(v, count) if k in self.along else v for k, v in given.items()}
        name, source = self.asked.encoder or (None, None)
        last = np.int32(self.last)
        if self.mesh is not None and not self.mesh.is_multi_process:  # there all give all prompts
            ids, given, source = batches.place((ids, given, source), self.mesh, whole=True)
        args = (self.model, ids, given, source, carry, self.picker, last, plan, name)
        run = programs.prefill if plan.padded else partial(model_steps.by_values, programs.prefill)
        out = run(*args)
        self.check(out[0])
        return out

    @property
    def divided(self) -> int:
        """How many devices hold positions of a prompt."""
        axis = "" if self.mesh is None else sequence_axis(self.mesh)
        return 1 if self.mesh is None or not axis else self.mesh.shape[axis]

    @property
    def limit(self) -> int:
        """How many positions the model may have a table of: behind them is NaN."""
        config = self.model.source.module.config.get_text_config(decoder=True)
        return getattr(config, "max_position_embeddings", None) or sys.maxsize

    def check(self, logits: Any) -> None:
        """Raises WrongArguments where the model's own checks of images and their tokens failed."""
        seen = PROMPT_ONLY & {*self.asked.given}
        if seen and logits is not None and np.isnan(values(logits)).all():
            raise WrongArguments(
                f"the prompts do not fit {', '.join(sorted(seen))}",
                why="the model checks that there are as many tokens as parts of images or sounds, "
                "and its logits are no numbers",
                do="make both with the checkpoint's processor",
            )

    def decode(self, plan: Plan, guesses: assisted.Drafts | None = None) -> dict[str, Any]:
        """All tokens by the two programs."""
        logits, stays, carry = self.prefill(plan)
        along = programs.extended(self.along, plan.total)
        if not plan.cached:
            if PROMPT_ONLY & {*self.asked.given}:
                strategy.first(self, plan)
            carry = programs.room(self.model, plan, carry, stays, along)
        last = np.int32(self.last)
        go = lambda carry, until: programs.decode(
            self.model, carry, stays, along, np.int32(until), last, self.picker, plan
        )
        if guesses:
            draft, carry = guesses.start(self, plan, carry)
            drafted = partial(guesses.decode, self, draft, stays, along, plan)
            go = assisted.interrupted(drafted, go, self.limit - guesses.count + 1)
        if self.renewal:
            go = long_rope.interrupted(self, plan, go)
        if self.streamer is None:
            carry = go(carry, self.last)
            refuse_nan(_behind_prompt(logits))  # while the program runs
            return carry
        refuse_nan(_behind_prompt(logits))
        if plan.cached:
            self.say(carry, self.length)
        while int(carry["at"]) < self.last and not bool(carry["done"].all()):
            at = int(carry["at"])
            carry = go(carry, at + 1)
            refuse_nan(carry["lost"], "after new tokens")
            for place in range(at, int(carry["at"])):
                self.say(carry, place)
        return carry

    def say(self, carry: dict[str, Any], at: int) -> None:
        """Gives the tokens at ``at`` to the streamer."""
        if self.streamer is not None:
            self.streamer.put(_tokens(carry["ids"][:, at]))

    def literal(self) -> dict[str, Any]:
        """All tokens with a program for each length."""
        if self.plan.beams:
            raise Unsupported(
                f"num_beams with {self.model.source.name}",
                why="its states do not have a fixed shape",
                do="leave num_beams out",
            )
        warn_once.warn(
            f"{self.model.source.name} has states or masks that change their shapes with the text, "
            "so every length is a program of its own, or runs op by op",
            SlowGeneration,
        )
        text = Literal(self.model, self.asked.ids, self.given, self.asked.encoder, self.plan)
        self.check(text.logits)
        carry = self.start()
        while True:
            at = int(carry["at"])
            carry = programs.pick_first(
                self.model, self.plan, self.picker, carry, text.logits, np.int32(self.last)
            )
            self.say(carry, at)
            if at + 1 >= self.last or bool(carry["done"].all()):
                return carry
            text.append(carry["ids"][:, : at + 1])

    def result(self, carry: dict[str, Any]) -> Any:
        """What the user gets."""
        refuse_nan(carry["lost"], "after new tokens")
        extra: dict[str, Any] = {}
        settings = self.asked.settings
        if self.plan.beams and self.last > self.length:
            ids, scores, came = search.result(carry, settings.num_return_sequences, self.length)
            ids = jax.device_put(ids)
            shown = jax.device_put(scores) if settings.output_scores else None
            extra = {"sequences_scores": shown, "beam_indices": jax.device_put(came)}
        else:
            # Cut by numpy, and put: JAX would compile a slice, and asarray too, for each length.
            ids = jax.device_put(np.asarray(carry["ids"])[:, : int(carry["at"])])
        if not self.answers:
            return ids
        count = int(carry["at"]) - self.length
        for name in ("scores", "logits"):
            extra[name] = tuple(carry[name][:count]) if name in carry else None
        kind = "EncoderDecoder" if self.asked.encoder else "DecoderOnly"
        cls = getattr(theirs, f"Generate{'Beam' if self.plan.beams else ''}{kind}Output")
        return cls(sequences=ids, **extra)


def _behind_prompt(logits: Any) -> Any:
    return False if logits is None else np.isnan(values(logits)).all(-1)


def pad_right(array: np.ndarray, count: int, filler: int = 0) -> np.ndarray:
    """``array`` with ``filler`` behind it, up to ``count`` positions."""
    width = [(0, 0)] * (array.ndim - 1) + [(0, count - array.shape[-1])]
    return np.pad(array, width, constant_values=filler)


def _round(count: int, step: int) -> int:
    return -(-count // step) * step


def _tokens(ids: Any) -> Any:
    import torch

    return torch.from_numpy(np.array(ids))


def _beams(settings: Any) -> search.Beams | None:
    if settings.num_beams == 1:
        return None
    ends, pad = settings._eos_token_tensor, settings._pad_token_tensor
    count = settings.num_beams
    kept = max(2, 1 + (0 if ends is None else len(ends))) * count
    fill = -1 if ends is None else int(pad or ends[0])
    return search.Beams(count, kept, settings.early_stopping, fill)
