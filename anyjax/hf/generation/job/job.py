"""One call of generate: its buffers, and the two programs that fill them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import GenerationConfig

from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.decode import beams, guidance, long_rope, model_steps, programs
from anyjax.hf.generation.decode.programs import Picker, Plan
from anyjax.hf.generation.request import logits_processors
from anyjax.hf.generation.request.checks import refuse_nan
from anyjax.hf.generation.request.request import PROMPT_ONLY, Request
from anyjax.hf.generation.request.stopping import stopping
from anyjax.model import Model
from anyjax.multiprocess import values
from anyjax.parallel import batches
from anyjax.parallel.plans.axes import sequence_axis
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DecodeUntil = Callable[[dict[str, PyTree], int], dict[str, Any]]
# Takes the plan, the carry, arguments that stay, those with an entry per position and a decoder;
# returns one that reads drafts, and the carry.
Drafting = Callable[..., tuple[DecodeUntil, dict[str, Any]]]
# Prompts and buffers are rounded up to a multiple of these, so that few programs serve many sizes.
PROMPT_STEP, TOTAL_STEP, RECORD_STEP = 16, 64, 16


class Job:
    """One call of generate.

    Attributes:
      request: the options, ids and inputs of the call.
      length, last: positions of the prompt, and of the longest text.
      model_inputs: further arguments of the model that are traced.
      along: those with one entry per position.
      mesh: where the model lies, None for a single device.
      guide: the second texts of classifier-free guidance, None without it.
      plan: what programs are compiled for.
      picker: how tokens are picked.
      returns_dict: whether the output is transformers' class.
      draft_count: tokens that are drafted at once, 0 for none.
      renewal: the length of the text at which the cache is made anew, None for never.
    """

    def __init__(
        self,
        model: Model,
        request: Request,
        rng: jax.Array | None = None,
        streamer: Any = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        draft_count: int = 0,
    ):
        self.model, self.request, self.rng, self.streamer = model, request, rng, streamer
        self.mesh = batches.mesh_of(model.params)
        self.draft_count = draft_count
        settings = request.settings
        ending = stopping(settings, request.criteria, tokenizer)
        self.length, self.last = request.ids.shape[1], ending.last
        self.model_inputs, static_inputs = model_steps.split_static(request.model_inputs)
        by_position = programs.inputs_by_position(model)
        self.along = {k: v for k, v in self.model_inputs.items() if k in by_position}
        beam_options = _beam_options(settings)
        self.guide = guidance.guide_of(request, beam_options)
        processors = request.processors[1:] if self.guide else request.processors
        chain = logits_processors.chain(processors, len(request.ids), request.source)
        self.picker = Picker(chain, ending.stops, ending.ends, ending.pad)
        self.returns_dict = bool(settings.return_dict_in_generate)
        record_steps = _round_up(self.last - self.length, RECORD_STEP) if self.returns_dict else 0
        extra = max(0, self.guide["ids"].shape[1] - self.length) if self.guide else 0
        extra += draft_count
        self.plan = Plan(
            total=_round_up(self.last + extra, TOTAL_STEP),
            cached=bool(settings.use_cache),
            static_inputs=static_inputs,
            sample=rng is not None,
            scores=record_steps if settings.output_scores else 0,
            logits=record_steps if settings.output_logits else 0,
            beams=beam_options,
        )
        self.renewal = self._renewal()
        self._check_taps()
        if streamer is not None and self.plan.beams:
            raise Unsupported(
                "streamer together with num_beams",
                why="which beam wins shows at the end",
                do="leave one of them out",
            )

    def _check_taps(self) -> None:
        """Raises Unsupported for taps beside what makes several texts or steps at once."""
        features: dict[str, Any]
        features = {"num_beams": self.plan.beams, "assistant_model": self.draft_count}
        features |= {"guidance_scale": self.guide, "use_cache=False": not self.plan.cached}
        features |= {"a longer context": self.renewal}
        if self.reads and (conflicts := [name for name, present in features.items() if present]):
            raise Unsupported(
                f"{conflicts[0]} together with anyjax.transforms.intermediates",
                why="a step has one value of each module",
                do="leave one of them out",
            )

    @property
    def reads(self) -> bool:
        """Whether values of modules are returned beside the text."""
        return any(tap.edit is None for tap in self.model.source.taps)

    def _renewal(self) -> int | None:
        module = self.model.source.module
        at = long_rope.renewed_at(module, self.length, self.last) if self.plan.cached else None
        features: dict[str, Any] = {"a draft": self.draft_count, "guidance_scale": self.guide}
        features |= dict.fromkeys(sorted(PROMPT_ONLY & {*self.request.model_inputs}), True)
        if at and (conflicts := [name for name, present in features.items() if present]):
            long_rope.refuse_renewal(
                module, conflicts[0], "leave it out, or end before (max_new_tokens)"
            )
        return at

    def initial_carry(self, filler: int = 0) -> dict[str, Any]:
        """Returns what every way of decoding begins with; ``filler`` stands behind the prompt."""
        ids = np.full((len(self.request.ids), self.plan.total), filler, np.int32)
        ids[:, : self.length] = self.request.ids
        carry: dict[str, Any] = {
            "at": np.int32(self.length),
            "done": np.zeros(len(ids), bool),
            "lost": np.zeros(len(ids), bool),
            "start": np.int32(self.length),
        }
        if self.rng is not None:
            carry["rng"] = self.rng
        if self.plan.beams:
            penalty = self.request.settings.length_penalty
            carry |= beams.initial_beams(self.plan.beams, ids, self.length, penalty)
        if self.guide:
            carry["guide"] = self.guide
        return carry | {"ids": ids}

    def prefill(self, plan: Plan, filler: int = 0, carry: dict[str, Any] | None = None):
        """Returns (logits, arguments that stay, carry); ``filler`` pads a padded prompt."""
        carry = self.initial_carry() if carry is None else carry
        length = int(carry["at"])
        ids = np.asarray(carry["ids"])[:, :length]
        model_inputs = self.model_inputs | programs.extended(self.along, length)
        if plan.padded:
            count = _round_up(length, math.lcm(PROMPT_STEP, self.position_shards))
            count = min(count, self.max_positions) if length <= self.max_positions else count
            ids = pad_right(ids, count, filler)
            padded = {k: pad_right(model_inputs[k], count) for k in self.along}
            model_inputs = model_inputs | padded
        name, source = self.request.encoder or (None, None)
        last = np.int32(self.last)
        # Of several processes each gives all prompts.
        if self.mesh is not None and not self.mesh.is_multi_process:
            inputs: Any = ids, model_inputs, source
            inputs = batches.place(inputs, self.mesh, whole=True)
            ids, model_inputs, source = inputs
        args = (self.model, ids, model_inputs, source, carry, self.picker, last, plan, name)
        if plan.padded:
            out = programs.prefill(*args)
        else:
            out = model_steps.call_program(programs.prefill, *args)
        self.check_images(out[0])
        return out

    def first_logits(self, plan: Plan, filler: int = 0) -> Any:
        """Returns the logits after the prompt."""
        logits, stays, carry = self.prefill(plan, filler)
        if logits is None:
            ids = self.initial_carry(filler)["ids"]
            logits = self.step_logits(plan, ids, self.length, stays, carry["state"])
            self.check_images(logits)
        return logits

    def step_logits(
        self, plan: Plan, ids: np.ndarray, at: int, stays: object, state: PyTree
    ) -> Any:
        """Returns the logits of a step at position ``at``."""
        along = programs.extended(self.along, plan.total)
        return programs.logits_of(self.model, ids, np.int32(at), stays, state, along, plan)

    @property
    def position_shards(self) -> int:
        """The number of devices that the positions of a prompt are divided among."""
        axis = "" if self.mesh is None else sequence_axis(self.mesh)
        return 1 if self.mesh is None or not axis else self.mesh.shape[axis]

    @property
    def max_positions(self) -> int:
        """The size of the model's table of positions, if it has one: behind it is NaN."""
        config = self.model.source.module.config.get_text_config(decoder=True)
        return getattr(config, "max_position_embeddings", None) or sys.maxsize

    def check_images(self, logits: jax.Array) -> None:
        """Raises WrongArguments where the model's own checks of images and their tokens failed."""
        names = PROMPT_ONLY & {*self.request.model_inputs}
        if names and logits is not None and np.isnan(values(logits)).all():
            raise WrongArguments(
                f"the prompts do not fit {', '.join(sorted(names))}",
                why="the model checks that there are as many tokens as parts of images or sounds, "
                "and its logits are no numbers",
                do="make both with the checkpoint's processor",
            )

    def decode(self, plan: Plan, drafting: Drafting | None = None) -> dict[str, Any]:
        """Generates all tokens by the two programs."""
        logits, stays, carry = self.prefill(plan)
        along = programs.extended(self.along, plan.total)
        if not plan.cached:
            if PROMPT_ONLY & {*self.request.model_inputs}:
                self.first_logits(plan)
            args = carry["ids"], carry["at"], stays, carry["state"], along
            shape = programs.logits_of.eval_shape(self.model, *args, plan=plan)
            carry = programs.allocate_records(plan, carry, shape)
        carry = self._allocate_readings(plan, carry, stays, along)
        last = np.int32(self.last)
        decode_until = lambda carry, until: programs.decode(
            self.model, carry, stays, along, np.int32(until), last, self.picker, plan
        )
        if drafting is not None:
            decode_until, carry = drafting(plan, carry, stays, along, decode_until)
        if self.renewal:
            prefill = partial(self.prefill, plan)
            decode_until = long_rope.with_renewal(self.renewal, prefill, decode_until)
        if self.streamer is None:
            carry = decode_until(carry, self.last)
            refuse_nan(_nan_rows(logits))  # while the program runs
            return carry
        refuse_nan(_nan_rows(logits))
        if plan.cached:
            self.stream(carry, self.length)
        while int(carry["at"]) < self.last and not bool(carry["done"].all()):
            at = int(carry["at"])
            carry = decode_until(carry, at + 1)
            refuse_nan(carry["lost"], "after new tokens")
            for position in range(at, int(carry["at"])):
                self.stream(carry, position)
        return carry

    def _allocate_readings(
        self, plan: Plan, carry: dict[str, Any], stays: object, along: dict[str, PyTree]
    ) -> dict[str, Any]:
        """Returns the carry with buffers for what taps read, a row for each step."""
        if "prompt readings" not in carry:
            return carry
        args = carry["ids"], carry["at"], stays, carry["state"], along
        shapes = programs.readings_of.eval_shape(self.model, *args, plan=plan)
        steps = self.last - self.length - 1
        empty = lambda x: jnp.zeros((steps, *x.shape), x.dtype)
        return carry | {"readings": jax.tree.map(empty, shapes)}

    def stream(self, carry: dict[str, Any], at: int) -> None:
        """Gives the tokens at ``at`` to the streamer, if there is one."""
        if self.streamer is not None:
            self.streamer.put(tokens_of(carry["ids"][:, at]))


def _nan_rows(logits: jax.Array) -> Any:
    return False if logits is None else np.isnan(values(logits)).all(-1)


def pad_right(array: np.ndarray, count: int, filler: int = 0) -> np.ndarray:
    """Pads ``array`` with ``filler`` on the right, to ``count`` positions."""
    width = [(0, 0)] * (array.ndim - 1) + [(0, count - array.shape[-1])]
    return np.pad(array, width, constant_values=filler)


def _round_up(count: int, step: int) -> int:
    return -(-count // step) * step


def tokens_of(ids: object) -> Any:
    """Returns ids as torch's tensor, which streamers take."""
    import torch

    return torch.from_numpy(np.array(ids))


def _beam_options(settings: GenerationConfig) -> beams.Beams | None:
    if settings.num_beams == 1:
        return None
    ends, pad = settings._eos_token_tensor, settings._pad_token_tensor
    count = settings.num_beams
    candidates = max(2, 1 + (0 if ends is None else len(ends))) * count
    fill = -1 if ends is None else int(pad or ends[0])
    return beams.Beams(count, candidates, settings.early_stopping, fill)
