"""One call of generate: what it asks for is looked at, and refused where it is not served."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
from transformers import GenerationMixin

from tojax.calls import explicit_mesh
from tojax.errors import Unsupported, WrongArguments
from tojax.hf.generation.job import assisted
from tojax.hf.generation.job.job import Job
from tojax.hf.generation.job.own_generate import WRAPS, wrapped
from tojax.hf.generation.request.checks import need_key, prompts, refuse_traced
from tojax.hf.generation.request.request import PROMPT_ONLY, Request, request
from tojax.model import Model

# What transformers' generate knows and this does not, with the values that ask for nothing.
UNSERVED = {
    "assistant_early_exit": None,
    "assistant_ensemble_weight": None,
    "cache_config": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "force_words_ids": None,
    "low_memory": None,
    "max_time": None,
    "num_beam_groups": 1,
    "output_attentions": False,
    "output_hidden_states": False,
    "penalty_alpha": None,
    "speculation_type": None,
    "token_healing": False,
    "use_mtp": False,
}
# Classes with a generate of their own that does nothing more where only ids are given.
PLAIN_FOR_IDS = {
    "GraniteSpeechForConditionalGeneration",
    "Nemotron3_5TranscribeForConditionalGeneration",
}
CALLED = {
    "assistant_tokenizer",
    "custom_generate",
    "synced_gpus",
}
CACHES = (None, "dynamic", "static", "hybrid")


def generate(
    model: Model, input_ids: Any, rng: Any, streamer: Any, tokenizer: Any, options: dict[str, Any]
) -> Any:
    """``tojax.generate`` of a model that is not loaded from programs."""
    module = language_model(model, options)
    mask = options.get("attention_mask")
    if isinstance(mask, (list, tuple)):  # as a tokenizer gives it without return_tensors
        options = options | {"attention_mask": np.asarray(mask)}
    refuse_traced(model.params, {"input_ids": input_ids, **options})
    _refuse_called(options)
    count, assistant = itertools.count(), _assistant(options)

    def common(inputs: Any, options: dict[str, Any]) -> Any:
        def ask(model: Any) -> Request:
            module = model.source.module
            return request(module, prompts_of(module, inputs), dict(options))

        asked = ask(model)
        refuse(asked.settings)
        key = key_of(asked.settings, rng, next(count))
        guesses = assisted.wanted(model, assistant, asked, options, ask, Job)
        return Job(model, asked, key, streamer, tokenizer, guesses).run()

    with explicit_mesh.without_explicit_axes((model, input_ids, options)) as (
        model,
        input_ids,
        options,
    ):
        if type(module).__name__ in WRAPS:
            return wrapped(model, input_ids, options, common)
        return common(input_ids, options)


def _refuse_called(options: dict[str, Any]) -> None:
    """Raises Unsupported for arguments of transformers' generate that are no options."""
    if called := sorted(CALLED & {k for k, v in options.items() if v is not None}):
        raise Unsupported(
            f"the option {called[0]}",
            why="tojax.generate does not have it",
            do="leave it out",
        )


def _assistant(options: dict[str, Any]) -> Model | None:
    """The smaller model, taken out of the options."""
    assistant = options.pop("assistant_model", None)
    if assistant is None:
        return None
    if not isinstance(assistant, Model):
        raise WrongArguments(
            f"assistant_model is a {type(assistant).__name__}",
            why="it drafts inside of the same program",
            do="give a Model: tojax.from_pretrained(folder) or tojax.from_torch(module)",
        )
    language_model(assistant, options)
    return assistant


def key_of(settings: Any, rng: jax.Array | None, call: int) -> jax.Array | None:
    """The key of one of several calls, None where nothing is drawn."""
    if not settings.do_sample:
        return None
    rng = need_key(rng)
    return jax.random.fold_in(rng, call) if call else rng


def refuse(settings: Any) -> None:
    """Raises Unsupported for options that would be ignored."""
    for name, nothing in UNSERVED.items():
        value = getattr(settings, name, nothing)
        if value is not None and value != nothing:
            raise Unsupported(
                f"the option {name}={value!r}",
                why="tojax.generate does not have it",
                do=f"leave it at {nothing!r}, in the call or in the model's generation_config",
            )
    if settings.cache_implementation not in CACHES:
        raise Unsupported(
            f"the option cache_implementation={settings.cache_implementation!r}",
            why="caches have one fixed form here",
            do="leave it out",
        )


def language_model(model: Model, options: dict[str, Any]) -> Any:
    """The transformers module behind a model that generates as all of them do."""
    module = getattr(model.source, "module", None)
    if not hasattr(module, "generate") or not hasattr(module, "prepare_inputs_for_generation"):
        raise Unsupported(
            f"{model.source.name} generates no text",
            why="it is no transformers model with a language-model head",
            do="use a checkpoint that has one, such as with task='CausalLM'",
        )
    kind: Any = type(module)
    plain = kind.__name__ in PLAIN_FOR_IDS and not PROMPT_ONLY & {*options}
    plain = plain or kind.__name__ in WRAPS
    if kind.generate is not GenerationMixin.generate and not plain:
        raise Unsupported(
            f"{kind.__name__} has a way of generating of its own",
            why="tojax.generate does what transformers does for all other models",
            do="generate with transformers: model.to_torch().generate(...)",
        )
    return module


def prompts_of(module: Any, input_ids: Any) -> Any:
    """Prompts as numpy's integers [batch, length]; what is no text stays."""
    if input_ids is None or module.main_input_name != "input_ids":
        return input_ids
    return prompts(input_ids)
