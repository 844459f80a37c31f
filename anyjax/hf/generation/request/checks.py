"""Checks of any call of generate, also of a loaded model; they need no framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from anyjax.calls.rng import check_key
from anyjax.dtypes import fitting
from anyjax.errors import MissingRng, NotNumbers, WrongArguments
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from jax.typing import ArrayLike

NUMPY = 'padding=True, return_tensors="np"'  # tokenizers have no "jax" any more


def refuse_traced(params: PyTree, arguments: dict[str, Any]) -> None:
    """Raises WrongArguments inside the caller's jit, grad or vmap."""
    for name, value in {"params": params, **arguments}.items():
        if not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value)):
            continue
        raise WrongArguments(
            f"{name} is traced",
            why="generate looks at its prompts to choose programs, and compiles those by itself",
            do="call it outside of jax.jit and jax.vmap, with one row per prompt; "
            "loops of your own carry model.cache(...)",
        )


def _holds_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(x, str) for x in value)


def prompts(input_ids: ArrayLike) -> np.ndarray:
    """Returns prompts, integers [batch, length], as a numpy array.

    Raises:
      WrongArguments: they are something else.
    """
    if isinstance(input_ids, (str, Mapping)) or _holds_texts(input_ids):
        raise WrongArguments(
            f"input_ids are a {type(input_ids).__name__}",
            why="prompts are integers of shape [batch, length], which a tokenizer makes of texts",
            do=f"call generate(model, **inputs) with inputs = tokenizer(texts, {NUMPY})",
        )
    ids = fitting(np.asarray(input_ids))
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or not ids.size:
        raise WrongArguments(
            f"input_ids are {ids.dtype}{list(ids.shape)}",
            why="prompts are integers of shape [batch, length]",
            do="give one row per prompt, left-padded to one length",
        )
    return ids


def check_mask(mask: object, input_ids: object) -> Any:
    """Returns a mask of prompts as an array, lists as numpy's.

    Raises:
      WrongArguments: it is no array, or has another shape than the prompts.
    """
    if isinstance(mask, (list, tuple)):  # as a tokenizer gives it without return_tensors
        mask = np.asarray(mask)
    shapes = [getattr(x, "shape", None) for x in (mask, input_ids)]
    if mask is None or (shapes[0] is not None and len(shapes[0]) != 2):
        return mask
    if shapes[0] is None or (shapes[1] is not None and tuple(shapes[0]) != tuple(shapes[1])):
        shown = f"a {type(mask).__name__}" if shapes[0] is None else [*shapes[0]]
        raise WrongArguments(
            f"attention_mask is {shown}",
            why="it has a number for each token of the prompts"
            + (f", of shape {[*shapes[1]]}" if shapes[1] is not None else ""),
            do=f"call generate(model, **inputs) with inputs = tokenizer(texts, {NUMPY})",
        )
    return mask


def need_key(rng: jax.Array | None) -> jax.Array:
    """Returns the key that tokens are drawn with.

    Raises:
      MissingRng: there is no key.
      WrongArguments: it is something else.
    """
    check_key(rng)
    if rng is None:
        raise MissingRng(
            "do_sample=True without rng",
            why="tokens are drawn, and a JAX function gets its randomness as an argument",
            do="pass rng=jax.random.key(0), or do_sample=False for the likeliest tokens",
        )
    return rng


def refuse_nan(rows: Any, where: str = "behind the prompt") -> None:
    """Raises NotNumbers where every logit of a row is NaN: any token would be picked."""
    if not np.asarray(rows).any():  # of an array of JAX, np.any would compile
        return
    raise NotNumbers(
        f"the logits {where} are NaN",
        why="a token is not in the vocabulary, the text is longer than the model's table of "
        "positions, or the weights hold NaN or infinite values, or overflow in this dtype",
        do="compare with config.vocab_size and config.max_position_embeddings, and look at the "
        "weights: [k for k, v in model.params.items() if not jnp.isfinite(v).all()]",
    )
