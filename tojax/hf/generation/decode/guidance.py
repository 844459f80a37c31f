"""Classifier-free guidance: a second text beside each row, read by the same model at every step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers.generation.logits_process import (
    UnbatchedClassifierFreeGuidanceLogitsProcessor as Guidance,
)

from tojax.errors import Unsupported
from tojax.hf.generation.decode import model_steps
from tojax.hf.generation.request.request import PROMPT_ONLY, Request, as_numpy
from tojax.model import Model


def asked_for(asked: Request, beams: Any) -> dict[str, Any] | None:
    """The second texts' beginning (the last tokens by default), None without guidance."""
    found = [p for p in asked.processors if type(p) is Guidance]
    if not found:
        return None
    context = found[0].unconditional_context
    ids = asked.ids[:, -1:] if context["input_ids"] is None else as_numpy(context["input_ids"])
    mask = np.ones_like(ids) if context["attention_mask"] is None else context["attention_mask"]
    whys = {
        "with beams": beams is not None,
        "with an encoder": asked.encoder is not None,
        "without a cache": not asked.settings.use_cache,
        "beside pictures or sounds": bool(PROMPT_ONLY & {*asked.given}),
        "with another number of negative prompts": len(ids) != len(asked.ids),
        "after another processor": asked.processors[0] is not found[0],
    }
    if said := [k for k, v in whys.items() if v]:
        raise Unsupported(
            f"the option guidance_scale {said[0]}",
            why="the second text is one more row of tokens for each row, with a cache of its own",
            do="leave one of them out",
        )
    scale = np.float32(found[0].guidance_scale)
    return {"ids": ids.astype(np.int32), "mask": as_numpy(mask), "scale": scale}


def start(model: Model, beginning: dict[str, Any], total: int, extended, last) -> dict[str, Any]:
    """The second texts, read; positions count from 0 whatever is masked, as in transformers."""
    ids = beginning["ids"]
    given = {"attention_mask": beginning["mask"]}
    if model_steps.takes(model, "position_ids"):
        given["position_ids"] = jnp.broadcast_to(
            jnp.arange(ids.shape[1], dtype=jnp.int32), ids.shape
        )
    logits, state = model_steps.run(
        model, "prefill", ids=ids, given=given, length=total, keep=None, use_cache=True
    )
    return {
        "scale": beginning["scale"],
        "at": jnp.int32(ids.shape[1]),
        "logits": last(logits, -1),
        "state": state,
        "along": extended(given, total),
    }


def step(model: Model, guide: dict[str, Any], token, advance, last) -> dict[str, Any]:
    """The second texts with one token more."""
    at = guide["at"] + 1
    logits, state = advance(model, token, at, {}, guide["state"], guide["along"])
    return guide | {"at": at, "logits": last(logits, -1), "state": state}


def guided(guide: dict[str, Any], logits):
    """Away from what the model says of the second text."""
    here, there = (jax.nn.log_softmax(x, -1) for x in (logits, guide["logits"]))
    return guide["scale"] * (here - there) + there
