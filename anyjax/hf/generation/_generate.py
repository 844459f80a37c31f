"""Text from a language model: the public function, which needs no framework for a loaded model."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Int

from anyjax.calls.layouts import with_arrays
from anyjax.errors import imports_of
from anyjax.hf.generation import saved_loop
from anyjax.model import Model
from anyjax.takes_model import check_model
from anyjax.typing import ArrayLike, Output


def generate(
    model: Model,
    input_ids: Int[ArrayLike, "batch length"] | None = None,
    attention_mask: Int[ArrayLike, "batch length"] | None = None,
    *,
    rng: jax.Array | None = None,
    streamer: Any = None,
    tokenizer: Any = None,
    **options: Any,
) -> Output:
    """Generates text, token for token the same as ``module.generate(...)`` of transformers.

    The prompt is one program and all further tokens are one more, a ``while_loop`` with the cache
    as its carry; both are compiled once for each bucket of prompt lengths (16) and total lengths
    (64). A model whose cache cannot have a fixed shape runs its whole text again at every step
    in a buffer of fixed length. If that does not give the same logits either, every length is a
    program of its own, which is slow; a model that reads values to decide what it does runs op by
    op, slower still. The first way that gives the same logits is tried out once for each model
    that transformers does not itself run with static caches.

    Args:
      model: a language model from ``from_pretrained`` or ``from_torch``: decoder-only,
        encoder-decoder, or with images or sound beside text. Or one from ``anyjax.load`` that was
        saved with ``generate=``: then options are those it was saved with, ``max_new_tokens`` may
        be smaller, and prompts of ids alone shorter and fewer. With pictures, sounds or an encoder
        give what it was saved with by name: other pixels and ids of the same shapes and layout.
      input_ids: prompts, left-padded to one length for decoder-only models.
      attention_mask: 1 for tokens, 0 for padding; by default 0 where ``input_ids`` is the padding
        token.
      rng: a key, for ``do_sample=True``.
      streamer: an object with ``put(ids)`` and ``end()``, such as transformers' TextStreamer; gets
        the prompts ``[batch, length]``, then ``[batch]`` tokens as they come, as torch tensors.
      tokenizer: needed for ``stop_strings``.
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
      WrongArguments: ids that are no [batch, length] integers, options that contradict, or others
        than a loaded model was saved with.
      MissingRng: ``do_sample=True`` without a key.

    Warns:
      SlowGeneration: every length is a program of its own, or a part runs op by op.

    Example:
      >>> import numpy as np
      >>> model = anyjax.from_pretrained("examples/tiny-llama")
      >>> anyjax.generate(model, np.array([[1, 2, 3]]), max_new_tokens=4, eos_token_id=-1).shape
      (1, 7)

      Chats, several at once; ``.tolist()`` because tokenizers do not read JAX arrays:

      >>> from transformers import AutoTokenizer
      >>> tokenizer = AutoTokenizer.from_pretrained("examples/tiny-llama", padding_side="left")
      >>> tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
      >>> chats = [[{"role": "user", "content": text}] for text in ("Hello", "Print a list")]
      >>> options = {"padding": True, "return_dict": True, "return_tensors": "np"}
      >>> prompts = tokenizer.apply_chat_template(chats, **options)
      >>> ids = anyjax.generate(model, **prompts, max_new_tokens=8)
      >>> len(tokenizer.batch_decode(ids[:, prompts["input_ids"].shape[1] :].tolist()))
      2
    """
    check_model(model, "generate")
    if attention_mask is not None:
        options["attention_mask"] = attention_mask
    options = with_arrays(options)  # of anyjax.static
    if saved_loop.is_loaded(model):
        return saved_loop.run_saved_loop(model, input_ids, rng, streamer, options)
    with imports_of("anyjax.generate"):
        from anyjax.hf.generation.job.generate import generate as generate_now

    return generate_now(model, input_ids, rng, streamer, tokenizer, options)
