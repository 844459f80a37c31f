"""Greedy decoding as two programs: prefill, and a while_loop over single positions with the cache
as its carry.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tojax.errors import Unsupported, WrongArguments
from tojax.hf import cache as caches
from tojax.model import Model

# Cache lengths are rounded up to a multiple of this, so that few programs serve many lengths.
STEP = 64
# transformers' processors and searches, with the values that leave greedy decoding as it is.
GREEDY = {
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": None,
    "max_time": None,
    "min_length": 0,
    "min_new_tokens": None,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": None,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": None,
}


def generate(
    model: Model,
    input_ids: Int[Array, "batch length"],
    attention_mask: Int[Array, "batch length"] | None = None,
    *,
    max_new_tokens: int = 20,
    eos_token_id: int | list[int] | None = None,
    pad_token_id: int | None = None,
    streamer: Any = None,
    rng: jax.Array | None = None,
    **options: Any,
) -> Int[Array, "batch total"]:
    """Greedy text, token for token what ``module.generate(do_sample=False)`` of transformers gives.

    Args:
      model: a decoder-only language model from ``from_pretrained`` or ``from_torch``.
      input_ids: prompts, left-padded to one length.
      attention_mask: 1 for tokens, 0 for padding; by default 0 where ``input_ids`` is the padding
      token.
      max_new_tokens: at most so many tokens follow each prompt.
      eos_token_id, pad_token_id: the model's own by default.
      streamer: an object with ``put(ids)`` and ``end()``, such as transformers' TextStreamer; gets
        the prompt, then every token as it comes.
      rng: unused by greedy decoding.
      **options: transformers' generation options; only their greedy defaults are accepted so far.

    Returns:
      Prompts and continuations, as long as the longest; after its end a row is filled with the
      padding token.

    Raises:
      Unsupported: an option, a cache or a model that this does not serve, by name, before anything
      runs.
      WrongArguments: ids that are no [batch, length] integers.

    Example:
      >>> import numpy as np
      >>> model = tojax.from_pretrained("examples/tiny-llama")
      >>> tojax.generate(model, np.array([[1, 2, 3]]), max_new_tokens=4, eos_token_id=-1).shape
      (1, 7)
    """
    settings = getattr(model.source.module, "generation_config", None)
    _refuse(model, settings, options)
    ids = _prompts(input_ids)
    ends, pad = _ends(eos_token_id, pad_token_id, settings)
    length = ids.shape[1]
    last = length + max_new_tokens
    if max_new_tokens < 1:
        return jnp.asarray(ids)
    mask = np.ones((len(ids), -(-last // STEP) * STEP), np.int32)
    mask[:, :length] = _mask(ids, settings, ends) if attention_mask is None else attention_mask
    carry = _prefill(model, ids, mask, ends)
    decode = partial(_decode, model, mask=mask, ends=ends, pad=pad)
    if streamer is None:
        carry = decode(carry, last=last)
    else:
        streamer.put(_tokens(carry["ids"][:, :length]))
        streamer.put(_tokens(carry["ids"][:, length]))
        for end in range(length + 2, last + 1):
            if bool(carry["done"].all()):
                break
            carry = decode(carry, last=end)
            streamer.put(_tokens(carry["ids"][:, end - 1]))
        streamer.end()
    return carry["ids"][:, : int(carry["at"])]


def _tokens(ids):
    import torch

    return torch.from_numpy(np.array(ids))


@jax.jit
def _prefill(model: Model, ids, mask, ends):
    """Runs the prompt; the carry of the loop: ids, cache, how far (``at``), which rows are done."""
    length, total = ids.shape[1], mask.shape[1]
    cache = caches.empty(model.source.module.config, total)
    logits, cache = _call(model, ids, mask, jnp.cumsum(mask[:, :length], 1) - 1, cache)
    token = logits.argmax(-1).astype(ids.dtype)
    room = jnp.zeros(mask.shape, ids.dtype).at[:, :length].set(ids).at[:, length].set(token)
    done = (token[:, None] == ends).any(1)
    return {"ids": room, "cache": cache, "at": jnp.asarray(length + 1), "done": done}


@partial(jax.jit, donate_argnums=1)
def _decode(model: Model, carry, mask, ends, pad, last):
    """One position after the other until ``last``, or until every row is done."""

    def body(carry):
        at, ids = carry["at"], carry["ids"]
        seen = jnp.arange(mask.shape[1]) < at
        position = (mask * seen).sum(1, keepdims=True) - 1
        token = jax.lax.dynamic_slice_in_dim(ids, at - 1, 1, 1)
        logits, cache = _call(model, token, mask, position, carry["cache"])
        token = jnp.where(carry["done"], pad, logits.argmax(-1)).astype(ids.dtype)
        ids = jax.lax.dynamic_update_slice_in_dim(ids, token[:, None], at, 1)
        done = carry["done"] | (token[:, None] == ends).any(1)
        return {"ids": ids, "cache": cache, "at": at + 1, "done": done}

    return jax.lax.while_loop(lambda c: (c["at"] < last) & ~c["done"].all(), body, carry)


def _call(model: Model, ids, mask, position, cache) -> tuple[jax.Array, Any]:
    """(logits of the last position, cache): one call of the model with its cache."""
    takes = model.source.signature.parameters
    extra: dict[str, Any] = (
        {"position_ids": jnp.maximum(position, 0)} if "position_ids" in takes else {}
    )
    extra |= {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
    out = model.apply(
        model.params,
        input_ids=ids,
        attention_mask=mask,
        past_key_values=cache,
        use_cache=True,
        **extra,
    )
    return out.logits[:, -1].astype(jnp.float32), out.past_key_values


def _refuse(model: Model, settings, options: dict[str, Any]) -> None:
    config = getattr(model.source.module, "config", None)
    name = model.source.name
    takes = getattr(model.source, "signature", None)
    if (
        config is None
        or settings is None
        or "past_key_values" not in getattr(takes, "parameters", {})
    ):
        raise Unsupported(
            f"{name} is no decoder-only language model with a key-value cache",
            why="tojax.generate passes past_key_values to a transformers model",
            do="use an AutoModelForCausalLM checkpoint, or write the loop around model.apply",
        )
    if config.is_encoder_decoder:
        raise Unsupported(
            f"{name} is an encoder-decoder model",
            why="tojax.generate serves decoder-only models so far",
            do="generate with transformers: model.to_torch().generate(...)",
        )
    if options.pop("do_sample", False):
        raise Unsupported(
            "do_sample=True",
            why="tojax.generate is greedy so far",
            do="leave it out, or sample from model.apply",
        )
    asked = {k: getattr(settings, k, None) for k in GREEDY} | options
    for option, value in asked.items():
        if option not in GREEDY and option not in ("use_cache", "return_dict_in_generate"):
            raise Unsupported(
                f"the option {option}={value!r}",
                why="tojax.generate does not know it",
                do="leave it out",
            )
        if (
            value is not None
            and option in GREEDY
            and value != GREEDY[option]
            and value not in ([], ())
        ):
            raise Unsupported(
                f"the option {option}={value!r}",
                why="tojax.generate is greedy without processors so far",
                do=f"set it to {GREEDY[option]!r}, in the call or in the model's generation_config",
            )


def _prompts(input_ids) -> np.ndarray:
    ids = np.asarray(input_ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or not ids.size:
        raise WrongArguments(
            f"input_ids are {ids.dtype}{list(ids.shape)}",
            why="prompts are integers of shape [batch, length]",
            do="give one row per prompt, left-padded to one length",
        )
    return ids.astype(np.int32)


def _ends(eos, pad, settings) -> tuple[np.ndarray, int]:
    """The end tokens, and the padding token: the first end token where the model has none."""
    eos = settings.eos_token_id if eos is None else eos
    pad = settings.pad_token_id if pad is None else pad
    ends = np.atleast_1d(np.asarray(-1 if eos is None else eos, np.int32))
    return ends, int(ends[0] if pad is None else pad)


def _mask(ids: np.ndarray, settings, ends) -> np.ndarray:
    """transformers' rule: padding is masked if it is in the ids and no end token."""
    pad = settings.pad_token_id
    return np.ones_like(ids) if pad is None or pad in ends else (ids != pad).astype(ids.dtype)
