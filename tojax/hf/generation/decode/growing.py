"""Generation exactly as transformers runs it, with shapes that grow: one program per length.

This is what other ways of decoding are compared with, and the last resort for models whose states
or masks depend on the length of the text in a way that fixed shapes cannot follow.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tojax.calls.program import program
from tojax.hf.generation.decode import model_steps, programs
from tojax.model import Model


@program(static_argnames=("plan", "encoder"))
def first(model: Model, ids, given, source, plan: programs.Plan, encoder: str | None):
    """(logits, arguments that stay, arguments that change) of the prompt."""
    given = given | dict(plan.fixed)
    if encoder is not None:
        given = model_steps.run(model, "encode", name=encoder, inputs=source, given=given)
    keep = 1 if model_steps.keeps(model) else None
    logits, state = model_steps.run(
        model, "prefill", ids=ids, given=given, length=None, keep=keep, use_cache=plan.cached
    )
    grows = programs.follows(model)
    stays = {k: v for k, v in given.items() if k not in (*grows, *state)}
    return logits[..., -1, :].astype(jnp.float32), stays, state


@program(static_argnames="plan")
def later(model: Model, ids, stays, state, along, plan: programs.Plan):
    """(logits, arguments that change) of the text so far."""
    keep = 1 if model_steps.keeps(model) else None
    logits, new = model_steps.run(
        model,
        "step",
        ids=ids,
        given=stays | state | along,
        count=1 if plan.cached else None,
        keep=keep,
        use_cache=plan.cached,
    )
    return logits[..., -1, :].astype(jnp.float32), state | new


class Literal:
    """The state of a text that grows; ``logits`` are those after ``ids``."""

    def __init__(self, model: Model, ids, given: dict[str, Any], encoder, plan: programs.Plan):
        self.model, self.plan = model, plan
        self.along = {k: v for k, v in given.items() if k in programs.follows(model)}
        name, source = encoder or (None, None)
        args = (model, ids, given, source, plan, name)
        self.logits, self.stays, self.state = model_steps.by_values(first, *args)

    def append(self, ids) -> None:
        """Goes on to ``ids``, which are one longer."""
        along = programs.extended(self.along, ids.shape[1])
        args = (self.model, np.asarray(ids), self.stays, self.state, along, self.plan)
        self.logits, self.state = model_steps.by_values(later, *args)
