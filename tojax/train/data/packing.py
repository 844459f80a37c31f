"""Short texts packed into rows of one length, each seeing itself alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tojax.errors import WrongBatch

OPEN = 8  # rows that wait for a text that fits
IGNORED = -100  # labels that losses of torch and transformers leave out


def pack(
    texts: Iterable[Sequence[int]], length: int, *, pad: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """Rows of several texts: each text goes into the first row with room, in the texts' order.

    Args:
      texts: token ids, each at most ``length``.
      length: of a row.
      pad: the id where a row is not full.

    Yields:
      int32 [length] each: ``input_ids``; ``segment_ids``, 1 for a row's first text and so on, 0 for
      padding; ``position_ids``, from 0 in each text; ``labels``, the ids, but -100 for padding and
      the first token of a text, which nothing before it predicts.

    Raises:
      WrongBatch: a text is longer.

    Example:
      >>> row, = tojax.train.pack([[5, 6, 7], [8, 9]], 6)
      >>> row["input_ids"].tolist(), row["segment_ids"].tolist()
      ([5, 6, 7, 8, 9, 0], [1, 1, 1, 2, 2, 0])
    """
    rows: list[list[Sequence[int]]] = []
    for text in texts:
        if len(text) > length:
            raise WrongBatch(
                f"a text of {len(text)} tokens",
                why=f"rows have {length}",
                do="cut it first, or give longer rows",
            )
        row = next((r for r in rows if sum(map(len, r)) + len(text) <= length), None)
        if row is None:
            rows.append(row := [])
        row.append(text)
        if len(rows) > OPEN:
            yield _joined(rows.pop(0), length, pad)
    for row in rows:
        yield _joined(row, length, pad)


def _joined(texts: list[Sequence[int]], length: int, pad: int) -> dict[str, np.ndarray]:
    """The texts of one row."""
    row = {k: np.zeros(length, np.int32) for k in ("input_ids", "segment_ids", "position_ids")}
    row["input_ids"] += pad
    row["labels"] = np.full(length, IGNORED, np.int32)
    at = 0
    for number, text in enumerate(texts, 1):
        here = slice(at, at + len(text))
        row["input_ids"][here] = text
        row["labels"][at + 1 : here.stop] = text[1:]
        row["segment_ids"][here] = number
        row["position_ids"][here] = np.arange(len(text))
        at = here.stop
    return row


def segment_mask(segment_ids: Any, dtype: Any = jnp.float32) -> jax.Array:
    """The attention mask of packed rows: each token sees those before it in its own text.

    Args:
      segment_ids: [rows, length], from ``pack``.
      dtype: of the mask.

    Returns:
      [rows, 1, length, length] to add to attention's logits, as models of transformers take it:
      0 or the most negative number. Padding sees itself.

    Example:
      >>> import numpy as np
      >>> (tojax.train.segment_mask(np.array([[1, 1, 2]]))[0, 0] == 0).astype(int).tolist()
      [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    """
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    seen = same & jnp.tri(segment_ids.shape[1], dtype=bool)
    return jnp.where(seen, jnp.zeros((), dtype), jnp.finfo(dtype).min)
