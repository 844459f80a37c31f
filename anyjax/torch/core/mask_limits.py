"""Masks whose limits are known, beside the mask itself: kernels take limits, and no array of all
pairs of positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anyjax.torch.core import current_trace

if TYPE_CHECKING:
    import jax


class Limits(NamedTuple):
    """The columns that the rows of a mask see.

    Attributes:
      causal, window, shift: as in ``numerics.attention.Form``.
      columns: of bool, [batch, 1, 1, source], False where no row sees one; None for all.
    """

    causal: bool
    window: int | None
    shift: int
    columns: jax.Array | None


def note(mask: jax.Array, limits: Limits) -> None:
    """Remembers, for the trace that goes on, that a mask is nothing but these limits."""
    notes = getattr(current_trace.trace(), "mask_limits", None)
    if notes is not None:
        notes[id(mask)] = mask, limits  # kept, so that nothing else gets its id


def limits_of(mask: jax.Array | None) -> Limits | None:
    """Returns the limits of a mask that ``note`` was told of, None for any other."""
    notes = getattr(current_trace.trace(), "mask_limits", {})
    return notes[id(mask)][1] if id(mask) in notes else None
