"""How far two language models are apart in what they predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Predictions:
    """Two language models on one text ``[batch, length]``.

    Attributes:
      divergence: Kullback-Leibler divergence from the reference at each position, in nats.
      agreement: the share of the reference's five likeliest tokens that the model has among its
        own, by position.
      first: (row, position, margin) where the likeliest token first differs, with the difference
        of the two logits in the reference; None where none does.
      perplexity: of the model and of the reference.
    """

    divergence: np.ndarray
    agreement: np.ndarray
    first: tuple[int, int, float] | None
    perplexity: tuple[float, float]

    def __str__(self) -> str:
        where = "the likeliest tokens are the same"
        if self.first is not None:
            row, position, margin = self.first
            where = f"the likeliest token differs first at [{row}, {position}], by {margin:.1e}"
        return (
            f"KL {self.divergence.max():.1e} at most; top 5 agree to {self.agreement.mean():.1%}; "
            f"{where}; perplexity {self.perplexity[0]:.4g}, reference {self.perplexity[1]:.4g}"
        )


def predictions(
    logits: np.ndarray, expected: np.ndarray, ids: np.ndarray, top: int = 5
) -> Predictions:
    """Compares logits ``[batch, length, vocabulary]`` on the text that they were computed for.

    Example:
      >>> import numpy as np
      >>> logits = np.log(np.array([[[0.5, 0.5], [0.5, 0.5]]]))
      >>> str(predictions(logits, logits, np.array([[0, 1]]), 1)).partition(";")[0]
      'KL 0.0e+00 at most'
    """
    p, q = (_log_softmax(x.astype(np.float64)) for x in (expected, logits))
    divergence = (np.exp(p) * (p - q)).sum(-1)
    best, likeliest = (np.argsort(-x, -1, kind="stable")[..., :top] for x in (p, q))
    agreement = (best[..., :, None] == likeliest[..., None, :]).any(-1).mean(-1)
    differ = np.argwhere(best[..., 0] != likeliest[..., 0])
    first = None
    if len(differ):
        row, position = map(int, differ[0])
        of = lambda token: float(expected[row, position, token])
        first = row, position, of(best[row, position, 0]) - of(likeliest[row, position, 0])
    return Predictions(divergence, agreement, first, (_perplexity(q, ids), _perplexity(p, ids)))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _perplexity(logs: np.ndarray, ids: np.ndarray) -> float:
    """Returns the perplexity of a text's tokens after the first."""
    if ids.shape[1] < 2:
        return float("nan")
    tokens = np.take_along_axis(logs[:, :-1], ids[:, 1:, None], -1)
    return float(np.exp(-tokens.mean()))
