"""The static part of an attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """The static part of one attention, which programs and kernels are chosen by.

    A row sees the columns that none of its limits excludes; row ``i`` stands beside column
    ``i + shift``.

    Attributes:
      scale: what scores are multiplied by.
      causal: columns to the right of a row's own are left out.
      window: that many columns up to a row's own are seen, None for all. It asks for ``causal``.
      shift: columns before the first row's own, as those that a cache holds already.
      cap: scores are bounded to this by ``cap * tanh(scores / cap)``, None for none.
      precision: of products in float32, as ``jax.default_matmul_precision`` has it.
    """

    scale: float
    causal: bool = False
    window: int | None = None
    shift: int = 0
    cap: float | None = None
    precision: str | None = None
