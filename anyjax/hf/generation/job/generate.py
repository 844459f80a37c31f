"""One call of generate: its options are checked, and its job is run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from transformers import GenerationConfig, PreTrainedModel

from anyjax import trees
from anyjax.calls import explicit_mesh
from anyjax.errors import Unsupported, WrongArguments
from anyjax.hf.generation.job import assisted
from anyjax.hf.generation.job.custom_generate import WRAPS, has_own, refused, run_own_generate
from anyjax.hf.generation.job.job import Job
from anyjax.hf.generation.job.run import run
from anyjax.hf.generation.request.checks import check_mask, need_key, prompts, refuse_traced
from anyjax.hf.generation.request.request import Request, build_request
from anyjax.model import Model

# Options of transformers' generate that are not served, with the values that have no effect.
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
NO_OPTIONS = {"assistant_tokenizer", "custom_generate", "synced_gpus"}
CACHES = (None, "dynamic", "static", "hybrid")


def generate(
    model: Model,
    input_ids: Any,
    rng: jax.Array | None,
    streamer: Any,
    tokenizer: Any,
    options: dict[str, Any],
) -> Any:
    """Runs ``anyjax.generate`` for a model that was not loaded from saved programs."""
    module = writer(model)
    past = options.get("past_key_values") is not None  # a mask covers that, too
    if (mask := options.get("attention_mask")) is not None:
        options = options | {"attention_mask": check_mask(mask, None if past else input_ids)}
    if input_ids is None and not any(map(trees.is_array, jax.tree.leaves(trees.register(options)))):
        input_ids = beginning(module, options)
    refuse_traced(model.params, {"input_ids": input_ids, **options})
    _refuse_called(options)
    count, assistant = itertools.count(), _assistant(options)

    def common_of(model: Model) -> Callable[[Any, dict[str, Any]], Any]:
        def common(inputs: Any, options: dict[str, Any]) -> Any:
            def request_of(model: Model) -> Request:
                module = model.source.module
                return build_request(module, prompts_of(module, inputs), dict(options))

            request = request_of(model)
            refuse_unserved(request.settings)
            key = key_of(request.settings, rng, next(count))
            drafts = assisted.drafts_of(model, assistant, request, options, request_of)
            drafted = drafts.count if drafts else 0
            return run(Job(model, request, key, streamer, tokenizer, drafted), drafts)

        return common

    with explicit_mesh.without_explicit_axes((model, input_ids, options)) as (
        model,
        input_ids,
        options,
    ):
        if has_own(module):
            return run_own_generate(model, input_ids, options, common_of)
        return common_of(model)(input_ids, options)


def _refuse_called(options: dict[str, Any]) -> None:
    """Raises Unsupported for arguments of transformers' generate that are no options."""
    if called := sorted(NO_OPTIONS & {k for k, v in options.items() if v is not None}):
        raise Unsupported(
            f"the option {called[0]}", why="anyjax.generate does not have it", do="leave it out"
        )


def _assistant(options: dict[str, Any]) -> Model | None:
    assistant = options.pop("assistant_model", None)
    if assistant is None:
        return None
    if not isinstance(assistant, Model):
        raise WrongArguments(
            f"assistant_model is a {type(assistant).__name__}",
            why="it drafts inside of the same program",
            do="give a Model: anyjax.from_pretrained(folder) or anyjax.from_torch(module)",
        )
    language_model(assistant)
    return assistant


def key_of(settings: GenerationConfig, rng: jax.Array | None, call: int) -> jax.Array | None:
    """Returns the key of one of several calls; None where nothing is drawn."""
    if not settings.do_sample:
        return None
    rng = need_key(rng)
    return jax.random.fold_in(rng, call) if call else rng


def refuse_unserved(settings: GenerationConfig) -> None:
    """Raises Unsupported for options that are not served."""
    for name, default in UNSERVED.items():
        value = getattr(settings, name, default)
        if value is not None and value != default:
            raise Unsupported(
                f"the option {name}={value!r}",
                why="anyjax.generate does not have it",
                do=f"leave it at {default!r}, in the call or in the model's generation_config",
            )
    if settings.cache_implementation not in CACHES:
        raise Unsupported(
            f"the option cache_implementation={settings.cache_implementation!r}",
            why="caches have one fixed form here",
            do="leave it out",
        )


def writer(model: Model) -> Any:
    """Returns the transformers module of a model that generates.

    Raises:
      Unsupported: it generates no text.
    """
    module = getattr(model.source, "module", None)
    if not hasattr(module, "generate") or not hasattr(module, "prepare_inputs_for_generation"):
        raise Unsupported(
            f"{model.source.name} generates no text",
            why="it is no transformers model with a language-model head",
            do="use a checkpoint that has one, such as with task='CausalLM'",
        )
    return module


def language_model(model: Model) -> Any:
    """Returns the transformers module of a model that uses the common generate.

    Raises:
      Unsupported: it generates no text, or in a way of its own.
    """
    module = writer(model)
    if has_own(module) and type(module).__name__ not in WRAPS:
        raise refused(module)
    return module


def beginning(module: PreTrainedModel, options: dict[str, Any]) -> np.ndarray:
    """Returns the prompt of a call without any: the token that begins texts, as in transformers.

    Raises:
      WrongArguments: the model has no such token, or reads something else.
    """
    settings = options.get("generation_config") or module.generation_config
    token = options.get("bos_token_id", settings.bos_token_id)
    if type(token) is not int or module.main_input_name != "input_ids":
        raise WrongArguments(
            "generate without a prompt",
            why=f"{type(module).__name__} reads {module.main_input_name}, no token begins texts",
            do="call anyjax.generate(model, input_ids, ...)",
        )
    return np.array([[token]])


def prompts_of(module: PreTrainedModel, input_ids: Any) -> Any:
    """Returns prompts as numpy's integers [batch, length]; other inputs unchanged."""
    if input_ids is None or module.main_input_name != "input_ids":
        return input_ids
    return prompts(input_ids)
