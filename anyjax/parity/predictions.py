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
    positions = [*np.ndindex(ids.shape)]
    divergence, agreement = np.zeros(ids.shape), np.zeros(ids.shape)
    of_tokens = np.zeros((2, *ids.shape))  # log probabilities of the tokens that follow
    first = None
    for row, position in positions:  # one by one: vocabularies are large
        p, q = (_log_softmax(x[row, position].astype(np.float64)) for x in (expected, logits))
        divergence[row, position] = (np.exp(p) * (p - q)).sum()
        agreement[row, position] = len(_likeliest(p, top) & _likeliest(q, top)) / top
        best, likeliest = int(p.argmax()), int(q.argmax())
        if first is None and best != likeliest:
            first = row, position, float(p[best] - p[likeliest])
        if position + 1 < ids.shape[1]:
            token = ids[row, position + 1]
            of_tokens[:, row, position] = q[token], p[token]
    model, reference = map(_perplexity, of_tokens)
    return Predictions(divergence, agreement, first, (model, reference))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def _likeliest(logs: np.ndarray, top: int) -> set[int]:
    """Returns the tokens with the largest probabilities."""
    return {*np.argpartition(-logs, min(top, logs.size) - 1)[:top].tolist()}


def _perplexity(logs: np.ndarray) -> float:
    """Returns the perplexity of a text's tokens after the first."""
    return float(np.exp(-logs[:, :-1].mean())) if logs.shape[1] > 1 else float("nan")
