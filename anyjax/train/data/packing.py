"""Short texts packed into rows of one length; attention stays within each text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import WrongBatch

if TYPE_CHECKING:
    from jaxtyping import Int

    from anyjax.typing import ArrayLike

OPEN = 8  # rows that wait for a text that fits
IGNORED = -100  # labels that losses of torch and transformers leave out


def pack(
    texts: Iterable[Sequence[int]], length: int, *, pad: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """Packs several texts into each row: a text goes into the first row with room, in order.

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
      >>> row, = anyjax.train.pack([[5, 6, 7], [8, 9]], 6)
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
            yield _row_arrays(rows.pop(0), length, pad)
    for row in rows:
        yield _row_arrays(row, length, pad)


def _row_arrays(texts: list[Sequence[int]], length: int, pad: int) -> dict[str, np.ndarray]:
    row = {k: np.zeros(length, np.int32) for k in ("input_ids", "segment_ids", "position_ids")}
    row["input_ids"] += pad
    row["labels"] = np.full(length, IGNORED, np.int32)
    start = 0
    for number, text in enumerate(texts, 1):
        span = slice(start, start + len(text))
        row["input_ids"][span] = text
        row["labels"][start + 1 : span.stop] = text[1:]
        row["segment_ids"][span] = number
        row["position_ids"][span] = np.arange(len(text))
        start = span.stop
    return row


def segment_mask(
    segment_ids: Int[ArrayLike, "rows length"], dtype: jax.typing.DTypeLike = jnp.float32
) -> jax.Array:
    """Returns the attention mask of packed rows: a token sees its own text up to itself.

    Args:
      segment_ids: [rows, length], from ``pack``.
      dtype: of the mask.

    Returns:
      [rows, 1, length, length] to add to attention's logits, as models of transformers take it:
      0 or the most negative number. Padding sees itself.

    Example:
      >>> import numpy as np
      >>> (anyjax.train.segment_mask(np.array([[1, 1, 2]]))[0, 0] == 0).astype(int).tolist()
      [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    """
    ids: Any = segment_ids
    same = ids[:, None, :, None] == ids[:, None, None, :]
    visible = same & jnp.tri(ids.shape[1], dtype=bool)
    return jnp.where(visible, jnp.zeros((), dtype), jnp.finfo(dtype).min)
