"""Classifier-free guidance: a second text for each row, read by the same model at every step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers.generation.logits_process import (
    UnbatchedClassifierFreeGuidanceLogitsProcessor as Guidance,
)

from anyjax.errors import Unsupported
from anyjax.hf.generation.decode import model_steps
from anyjax.hf.generation.decode.beams import Beams
from anyjax.hf.generation.request.request import PROMPT_ONLY, Request, as_numpy
from anyjax.model import Model


def guide_of(request: Request, beams: Beams | None) -> dict[str, Any] | None:
    """Returns the second texts' beginnings (by default the last tokens); None without guidance."""
    processors = [p for p in request.processors if type(p) is Guidance]
    if not processors:
        return None
    context = processors[0].unconditional_context
    ids = request.ids[:, -1:] if context["input_ids"] is None else as_numpy(context["input_ids"])
    mask = np.ones_like(ids) if context["attention_mask"] is None else context["attention_mask"]
    conditions = {
        "with beams": beams is not None,
        "with an encoder": request.encoder is not None,
        "without a cache": not request.settings.use_cache,
        "beside pictures or sounds": bool(PROMPT_ONLY & {*request.model_inputs}),
        "with another number of negative prompts": len(ids) != len(request.ids),
        "after another processor": request.processors[0] is not processors[0],
    }
    if conflicts := [k for k, v in conditions.items() if v]:
        raise Unsupported(
            f"the option guidance_scale {conflicts[0]}",
            why="the second text is one more row of tokens for each row, with a cache of its own",
            do="leave one of them out",
        )
    scale = np.float32(processors[0].guidance_scale)
    return {"ids": ids.astype(np.int32), "mask": as_numpy(mask), "scale": scale}


def prefill_guide(
    model: Model, beginning: dict[str, Any], total: int, extended, last_logits
) -> dict[str, Any]:
    """Reads the second texts; as in transformers, positions count from 0 whatever the mask is."""
    ids = beginning["ids"]
    model_inputs = {"attention_mask": beginning["mask"]}
    if model_steps.has_argument(model, "position_ids"):
        model_inputs["position_ids"] = jnp.broadcast_to(
            jnp.arange(ids.shape[1], dtype=jnp.int32), ids.shape
        )
    logits, state = model_steps.call_runner(
        model, "prefill", ids=ids, model_inputs=model_inputs, length=total
    )
    return {
        "scale": beginning["scale"],
        "at": jnp.int32(ids.shape[1]),
        "logits": last_logits(logits, -1),
        "state": state,
        "along": extended(model_inputs, total),
    }


def advance_guide(
    model: Model, guide: dict[str, Any], token, advance, last_logits
) -> dict[str, Any]:
    """Reads one token more of the second texts."""
    at = guide["at"] + 1
    logits, state = advance(model, token, at, {}, guide["state"], guide["along"])
    return guide | {"at": at, "logits": last_logits(logits, -1), "state": state}


def guided_scores(guide: dict[str, Any], logits):
    """Returns the scores, moved away from those of the second text."""
    conditional, unconditional = (jax.nn.log_softmax(x, -1) for x in (logits, guide["logits"]))
    return guide["scale"] * (conditional - unconditional) + unconditional
