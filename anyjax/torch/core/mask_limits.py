"""Masks whose limits are known, beside the mask itself: kernels take limits, and no array of all
pairs of positions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from anyjax.torch.core import current_trace


class Limits(NamedTuple):
    """The columns that the rows of a mask see.

    Attributes:
      causal, window, shift: as in ``numerics.attention.Form``.
      columns: [batch, n], 0 where no row sees one, nor any beyond them; None for all.
    """

    causal: bool
    window: int | None
    shift: int
    columns: jax.Array | None

    def mask(self, source: int) -> tuple[jax.Array, ...]:
        """Returns what masks that many columns, [batch, 1, 1, source]; none where all are seen."""
        if self.columns is None:
            return ()
        seen = self.columns.astype(bool)[:, :source]
        seen = jnp.pad(seen, [(0, 0), (0, source - seen.shape[1])])
        return (seen[:, None, None],)


def note(mask: jax.Array, limits: Limits) -> None:
    """Remembers, for the trace that goes on, that a mask is nothing but these limits."""
    notes = getattr(current_trace.trace(), "mask_limits", None)
    if notes is not None:
        notes[id(mask)] = mask, limits  # kept, so that nothing else gets its id


def limits_of(mask: jax.Array | None) -> Limits | None:
    """Returns the limits of a mask that ``note`` was told of, None for any other."""
    notes = getattr(current_trace.trace(), "mask_limits", {})
    return notes[id(mask)][1] if id(mask) in notes else None
