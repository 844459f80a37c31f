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

    def all_see(self, length: int, source: int) -> bool:
        """Returns whether each of so many rows sees one of so many columns, by its position.

        Example:
          >>> [Form(1.0, True, shift=n).all_see(4, 4) for n in (0, -1)]
          [True, False]
        """
        last = length - 1 + self.shift  # the last row's own column
        behind = self.window is not None and last - self.window + 1 >= source
        return not self.causal or (self.shift >= 0 and not behind)
