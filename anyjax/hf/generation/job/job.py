"""One call of generate: its buffers, the choice of decoding, its output."""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import GenerationConfig
from transformers.generation import utils as generation_utils

from anyjax import warn_once
from anyjax.errors import SlowGeneration, Unsupported, WrongArguments
from anyjax.hf.generation.decode import beams, guidance, long_rope, model_steps, programs
from anyjax.hf.generation.decode.growing import Literal
from anyjax.hf.generation.decode.programs import Picker, Plan
from anyjax.hf.generation.job import assisted, strategy
from anyjax.hf.generation.request import logits_processors
from anyjax.hf.generation.request.checks import refuse_nan
from anyjax.hf.generation.request.request import PROMPT_ONLY, Request
from anyjax.hf.generation.request.stopping import stopping
from anyjax.model import Model
from anyjax.multiprocess import check_same, values
from anyjax.parallel import batches
from anyjax.parallel.plans.axes import sequence_axis
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
      drafts: what drafts tokens, None for nothing.
      renewal: the length of the text at which the cache is made anew, None for never.
    """

    def __init__(
        self,
        model: Model,
        request: Request,
        rng: jax.Array | None = None,
        streamer: Any = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        drafts: assisted.Drafts | None = None,
    ):
        self.model, self.request, self.rng, self.streamer = model, request, rng, streamer
        self.mesh = batches.mesh_of(model.params)
        self.drafts = drafts
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
        extra += drafts.count if drafts else 0
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
        features = {"num_beams": self.plan.beams, "assistant_model": self.drafts}
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
        features = {"a draft": self.drafts, "guidance_scale": self.guide}
        features |= dict.fromkeys(sorted(PROMPT_ONLY & {*self.request.model_inputs}), True)
        if at and (conflicts := [name for name, present in features.items() if present]):
            long_rope.refuse_renewal(
                module, conflicts[0], "leave it out, or end before (max_new_tokens)"
            )
        return at

    def generate(self) -> Any:
        """Returns the ids, prompt included, or transformers' output class."""
        if self.mesh is not None and self.mesh.is_multi_process:
            inputs = {"prompts": self.request.source, "rng": self.rng, "length": self.last}
            inputs |= self.model_inputs
            check_same(
                {k: x for k, x in inputs.items() if x is not None},
                do="give all prompts in every process, or take a model without a mesh in each",
            )
        if self.streamer is not None:
            self.streamer.put(_tokens(self.request.ids))
        if self.last <= self.length:
            carry = self.initial_carry()
        else:
            plan = next(strategy.plans(self), None)
            if self.reads and (plan is None or not plan.cached):
                raise Unsupported(
                    f"values inside of {self.model.source.name} for each step",
                    why="its states do not have a fixed shape",
                    do="call the model on the whole text: intermediates(model, pattern)(ids)",
                )
            if self.guide and (plan is None or not plan.cached):
                raise Unsupported(
                    f"the option guidance_scale with {self.model.source.name}",
                    why="its states do not have a fixed shape",
                    do="leave guidance_scale out",
                )
            if self.drafts and (plan is None or not plan.cached):
                assisted.refuse_drafts(self.model)
            carry = self.decode_literal() if plan is None else self.decode(plan, self.drafts)
        if self.streamer is not None:
            self.streamer.end()
        return self.output(carry)

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

    def decode(self, plan: Plan, drafts: assisted.Drafts | None = None) -> dict[str, Any]:
        """Generates all tokens by the two programs."""
        logits, stays, carry = self.prefill(plan)
        along = programs.extended(self.along, plan.total)
        if not plan.cached:
            if PROMPT_ONLY & {*self.request.model_inputs}:
                strategy.first_logits(self, plan)
            args = carry["ids"], carry["at"], stays, carry["state"], along
            shape = programs.logits_of.eval_shape(self.model, *args, plan=plan)
            carry = programs.allocate_records(plan, carry, shape)
        carry = self._allocate_readings(plan, carry, stays, along)
        last = np.int32(self.last)
        decode_until = lambda carry, until: programs.decode(
            self.model, carry, stays, along, np.int32(until), last, self.picker, plan
        )
        if drafts:
            draft, carry = drafts.prefill(self, plan, carry)
            decode_drafted = partial(drafts.decode, self, draft, stays, along, plan)
            end = self.max_positions - drafts.count + 1
            decode_until = assisted.with_drafts(decode_drafted, decode_until, end)
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
            self.streamer.put(_tokens(carry["ids"][:, at]))

    def decode_literal(self) -> dict[str, Any]:
        """Generates all tokens with a program for each length."""
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
        text = Literal(
            self.model, self.request.ids, self.model_inputs, self.request.encoder, self.plan
        )
        self.check_images(text.logits)
        carry = self.initial_carry()
        while True:
            at = int(carry["at"])
            carry = programs.pick_first(
                self.model, self.plan, self.picker, carry, text.logits, np.int32(self.last)
            )
            self.stream(carry, at)
            if at + 1 >= self.last or bool(carry["done"].all()):
                return carry
            text.append(carry["ids"][:, : at + 1])

    def output(self, carry: dict[str, PyTree]) -> Any:
        """Returns the ids, or transformers' output class."""
        refuse_nan(carry["lost"], "after new tokens")
        extra: dict[str, Any] = {}
        settings = self.request.settings
        if self.plan.beams and self.last > self.length:
            ids, scores, beam_indices = beams.best_sequences(
                carry, settings.num_return_sequences, self.length
            )
            ids = jax.device_put(ids)
            extra["sequences_scores"] = jax.device_put(scores) if settings.output_scores else None
            extra["beam_indices"] = jax.device_put(beam_indices)
        else:
            # Cut by numpy: JAX would compile a slice, and asarray a copy, for each length.
            ids = jax.device_put(np.asarray(carry["ids"])[:, : int(carry["at"])])
        if not self.returns_dict:
            return self._beside(ids, carry)
        count = int(carry["at"]) - self.length
        for name in ("scores", "logits"):
            extra[name] = tuple(carry[name][:count]) if name in carry else None
        kind = "EncoderDecoder" if self.request.encoder else "DecoderOnly"
        cls = getattr(generation_utils, f"Generate{'Beam' if self.plan.beams else ''}{kind}Output")
        return self._beside(cls(sequences=ids, **extra), carry)

    def _beside(self, out: Any, carry: dict[str, PyTree]) -> Any:
        """Returns the output with what each tap read: by path one value for each step."""
        if "readings" not in carry:
            return out
        steps = int(carry["at"]) - self.length - 1
        for prompt, steps_after in zip(carry["prompt readings"], carry["readings"]):
            row = lambda i, tree=steps_after: jax.tree.map(lambda x: x[i], tree)
            rows = [prompt, *map(row, range(steps))]
            out = out, {path: tuple(values[path] for values in rows) for path in prompt}
        return out


def _nan_rows(logits: jax.Array) -> Any:
    return False if logits is None else np.isnan(values(logits)).all(-1)


def pad_right(array: np.ndarray, count: int, filler: int = 0) -> np.ndarray:
    """Pads ``array`` with ``filler`` on the right, to ``count`` positions."""
    width = [(0, 0)] * (array.ndim - 1) + [(0, count - array.shape[-1])]
    return np.pad(array, width, constant_values=filler)


def _round_up(count: int, step: int) -> int:
    return -(-count // step) * step


def _tokens(ids: object) -> Any:
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
