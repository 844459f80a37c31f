"""Generation exactly as transformers runs it, with shapes that grow: one program per length.

Other ways of decoding are compared with this one. It is the last resort for models whose states or
masks depend on the length of the text in a way that fixed shapes cannot follow.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from anyjax.calls.program import program
from anyjax.hf.generation.decode import model_steps, programs
from anyjax.model import Model
from anyjax.typing import PyTree


@program(static_argnames=("plan", "encoder"))
def first_logits(model: Model, ids, model_inputs, source, plan: programs.Plan, encoder: str | None):
    """Returns (logits, arguments that stay, arguments that change) of the prompt."""
    model_inputs = model_inputs | dict(plan.static_inputs)
    if encoder is not None:
        model_inputs = model_steps.call_runner(
            model, "encode", name=encoder, inputs=source, model_inputs=model_inputs
        )
    logits_to_keep = 1 if model_steps.selects_logits(model) else None
    logits, state = model_steps.call_runner(
        model,
        "prefill",
        ids=ids,
        model_inputs=model_inputs,
        length=None,
        logits_to_keep=logits_to_keep,
        use_cache=plan.cached,
    )
    by_position = programs.inputs_by_position(model)
    stays = {k: v for k, v in model_inputs.items() if k not in (*by_position, *state)}
    return logits[..., -1, :].astype(jnp.float32), stays, state


@program(static_argnames="plan")
def next_logits(model: Model, ids, stays, state, along, plan: programs.Plan):
    """Returns (logits, arguments that change) of the text so far."""
    logits_to_keep = 1 if model_steps.selects_logits(model) else None
    logits, new = model_steps.call_runner(
        model,
        "step",
        ids=ids,
        model_inputs=stays | state | along,
        count=1 if plan.cached else None,
        logits_to_keep=logits_to_keep,
        use_cache=plan.cached,
    )
    return logits[..., -1, :].astype(jnp.float32), state | new


class GrowingText:
    """The state of a text that grows; ``logits`` are those after ``ids``."""

    def __init__(
        self, model: Model, ids, model_inputs: dict[str, PyTree], encoder, plan: programs.Plan
    ):
        self.model, self.plan = model, plan
        self.along = {
            k: v for k, v in model_inputs.items() if k in programs.inputs_by_position(model)
        }
        name, source = encoder or (None, None)
        args = (model, ids, model_inputs, source, plan, name)
        self.logits, self.stays, self.state = model_steps.call_program(first_logits, *args)

    def append(self, ids) -> None:
        """Goes on to ``ids``, the text with one token more."""
        along = programs.extended(self.along, ids.shape[1])
        args = (self.model, np.asarray(ids), self.stays, self.state, along, self.plan)
        self.logits, self.state = model_steps.call_program(next_logits, *args)
