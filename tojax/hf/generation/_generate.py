"""Text from a language model: the public function."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int
from transformers import GenerationMixin

from tojax import explicit_mesh
from tojax.errors import MissingRng, Unsupported, WrongArguments
from tojax.hf.generation import assisted
from tojax.hf.generation.own_generate import WRAPS, wrapped
from tojax.hf.generation.request import PROMPT_ONLY, Request, request
from tojax.hf.generation.run import Job
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
    model: Model,
    input_ids: Int[Array, "batch length"] | None = None,
    attention_mask: Int[Array, "batch length"] | None = None,
    *,
    rng: jax.Array | None = None,
    streamer: Any = None,
    tokenizer: Any = None,
    **options: Any,
) -> Any:
    """Text, token for token what ``module.generate(...)`` of transformers gives.

    The prompt is one program and all further tokens are one more, a ``while_loop`` with the cache
    as its carry; both are compiled once for each bucket of prompt lengths (16) and total lengths
    (64). A model whose cache cannot have a fixed shape runs its whole text again at every step
    in a buffer of fixed length, and where that does not give the same logits either, every
    length is a program of its own, which is slow, or is run op by op, slower still, for a model
    that looks at values to decide what it does. Which of them is right is tried once for each
    model that transformers does not itself run with static caches.

    Args:
      model: a language model from ``from_pretrained`` or ``from_torch``: decoder-only,
        encoder-decoder, or with images or sound beside text.
      input_ids: prompts, left-padded to one length for decoder-only models.
      attention_mask: 1 for tokens, 0 for padding; by default 0 where ``input_ids`` is the padding
        token.
      rng: a key, for ``do_sample=True``.
      streamer: an object with ``put(ids)`` and ``end()``, such as transformers' TextStreamer; gets
        the prompts ``[batch, length]``, then ``[batch]`` tokens as they come, as torch tensors.
      tokenizer: what ``stop_strings`` needs.
      **options: generation options of transformers (``max_new_tokens``, ``num_beams``, ``top_p``,
        ``repetition_penalty``, ...), which have the model's ``generation_config`` for defaults, or
        a ``generation_config=`` with them, further inputs of the model (``pixel_values``,
        ``input_features``, ...), for Whisper ``language``, ``task``, ``return_timestamps``, ...
        ``assistant_model=`` is a smaller Model that drafts tokens, and ``prompt_lookup_num_tokens``
        drafts what the text has already: the same text, also with ``rng``, in fewer steps.

    Returns:
      Ids ``[batch, total]``: prompts and continuations (without the prompt for encoder-decoder
      models), as long as the longest; after its end a row is filled with the padding token. With
      ``return_dict_in_generate=True`` transformers' output class with JAX arrays.

    Raises:
      Unsupported: an option or a model that this does not serve, by name, before anything runs.
      WrongArguments: ids that are no [batch, length] integers, options that contradict.
      MissingRng: ``do_sample=True`` without a key.

    Warns:
      SlowGeneration: every length is a program of its own, or a part runs op by op.

    Example:
      >>> import numpy as np
      >>> model = tojax.from_pretrained("examples/tiny-llama")
      >>> tojax.generate(model, np.array([[1, 2, 3]]), max_new_tokens=4, eos_token_id=-1).shape
      (1, 7)

      Chats, several at once; ``.tolist()`` because tokenizers do not read JAX arrays:

      >>> from transformers import AutoTokenizer
      >>> tokenizer = AutoTokenizer.from_pretrained("examples/tiny-llama", padding_side="left")
      >>> tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
      >>> chats = [[{"role": "user", "content": text}] for text in ("Hello", "Print a list")]
      >>> options = {"padding": True, "return_dict": True, "return_tensors": "np"}
      >>> prompts = tokenizer.apply_chat_template(chats, **options)
      >>> ids = tojax.generate(model, **prompts, max_new_tokens=8)
      >>> len(tokenizer.batch_decode(ids[:, prompts["input_ids"].shape[1] :].tolist()))
      2
    """
    module = language_model(model, options)
    if attention_mask is not None:
        options["attention_mask"] = attention_mask
    _refuse_traced(model.params, {"input_ids": input_ids, **options})
    if called := sorted(CALLED & {k for k, v in options.items() if v is not None}):
        raise Unsupported(
            f"the option {called[0]}",
            why="tojax.generate does not have it",
            do="leave it out",
        )
    count, assistant = itertools.count(), _assistant(options)

    def common(inputs: Any, options: dict[str, Any]) -> Any:
        def ask(model: Any) -> Request:
            module = model.source.module
            return request(module, _prompts(module, inputs), dict(options))

        asked = ask(model)
        _refuse(asked.settings)
        key = _key(asked.settings, rng, next(count))
        guesses = assisted.wanted(model, assistant, asked, options, ask, Job)
        return Job(model, asked, key, streamer, tokenizer, guesses).run()

    with explicit_mesh.left((model, input_ids, options)) as (model, input_ids, options):
        if type(module).__name__ in WRAPS:
            return wrapped(model, input_ids, options, common)
        return common(input_ids, options)


def _refuse_traced(params: Any, given: dict[str, Any]) -> None:
    """Raises WrongArguments inside somebody's jit, grad or vmap."""
    for name, value in {"params": params, **given}.items():
        if not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value)):
            continue
        raise WrongArguments(
            f"{name} is traced",
            why="generate looks at its prompts to choose programs, and compiles those by itself",
            do="call it outside of jax.jit and jax.vmap, with one row per prompt; "
            "loops of your own carry model.cache(...)",
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


def _key(settings: Any, rng: jax.Array | None, call: int) -> jax.Array | None:
    """The key of one of several calls, None where nothing is drawn."""
    if not settings.do_sample:
        return None
    if rng is None:
        raise MissingRng(
            "do_sample=True without rng",
            why="tokens are drawn, and a JAX function gets its randomness as an argument",
            do="pass rng=jax.random.key(0), or do_sample=False for the likeliest tokens",
        )
    return jax.random.fold_in(rng, call) if call else rng


def _refuse(settings: Any) -> None:
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


def _prompts(module, input_ids):
    if input_ids is None or module.main_input_name != "input_ids":
        return input_ids
    ids = np.asarray(input_ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or not ids.size:
        raise WrongArguments(
            f"input_ids are {ids.dtype}{list(ids.shape)}",
            why="prompts are integers of shape [batch, length]",
            do="give one row per prompt, left-padded to one length",
        )
    return ids
