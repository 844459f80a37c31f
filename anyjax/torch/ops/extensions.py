"""Operators that other libraries register with torch, by name: they may never be imported."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import lowers
from anyjax.torch.ops.matmul import grouped_mm


@lowers("transformers.grouped_mm_fallback")
def grouped_mm_fallback(input, weight, offs):
    """``offs`` are the ends of the groups; rows behind the last stay zero."""
    return grouped_mm(input, weight, offs, None, None)


@lowers("torchaudio.forced_align")
def forced_align(log_probs, targets, input_lengths, target_lengths, blank):
    """(the most likely path, log_probs); whether there is one depends on the targets' values."""
    told, count = np.asarray(targets)[0], targets.shape[1]
    least = count + (told[1:] == told[:-1]).sum()
    if len(targets) != 1 or not 0 < least <= log_probs.shape[1]:
        raise _no_path(count, log_probs.shape[1], least)
    labels = jnp.full(2 * count + 1, blank, told.dtype).at[1::2].set(told)
    skips = jnp.zeros(len(labels), bool).at[3::2].set(told[1:] != told[:-1])
    frames = lax.stop_gradient(log_probs)[0][:, labels]
    delayed = lambda x, by: jnp.concatenate([jnp.full(by, -jnp.inf, x.dtype), x[:-by]])

    def forward(score, frame):
        step_one, two = delayed(score, 1), jnp.where(skips, delayed(score, 2), -jnp.inf)
        step = jnp.where((two > step_one) & (two > score), 2, jnp.where(step_one > score, 1, 0))
        return jnp.choose(step, [score, step_one, two], mode="clip") + frame, step

    start = jnp.where(jnp.arange(len(labels)) < 2, frames[0], -jnp.inf)
    score, steps = lax.scan(forward, start, frames[1:])
    last = jnp.where(score[-1] > score[-2], len(labels) - 1, len(labels) - 2)
    first, path = lax.scan(lambda at, step: (at - step[at], at), last, steps, reverse=True)
    return labels[jnp.append(first, path)][None], log_probs


def _no_path(count, frames, least) -> Unsupported:
    return Unsupported(
        f"forced_align of {count} targets to {frames} frames",
        why=f"torchaudio aligns one sequence, and these targets need at least {least} frames",
        do="call it for each sequence, with at least one target and that many frames",
    )
