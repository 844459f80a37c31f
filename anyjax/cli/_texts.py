"""Texts of a file as packed rows of tokens: plain text, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anyjax.errors import NoData, WrongValue
from anyjax.train import pack

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEYS = "text", "prompt", "completion"


def read_texts(path: str) -> list[str]:
    """Reads texts: of .jsonl the entries ``text``, or ``prompt`` and ``completion`` joined; other
    files are split at empty lines.

    Raises:
      WrongValue: a line is no JSON, or has no such entry; the file is no UTF-8.
      NoData: there is no text.
    """
    file = Path(path)
    try:
        content = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise WrongValue(
            f"{file.name} is not UTF-8",
            where=f"{path}, byte {error.start}",
            why="tokenizers read_texts text",
            do="convert it: iconv -f LATIN1 -t UTF-8",
        ) from None
    lines = file.suffix in (".jsonl", ".ndjson", ".json")
    texts = [*_entries(path, content)] if lines else content.split("\n\n")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise NoData(
            f"{file.name} holds no text",
            where=path,
            why="it is empty" if not content else "all of it is empty lines",
            do='give a text file, or lines such as {"text": "..."}',
        )
    return texts


def _entries(path: str, content: str) -> Iterator[str]:
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            texts = [entry[key] for key in KEYS if key in entry]
            assert texts and all(isinstance(text, str) for text in texts)
        except (ValueError, TypeError, AssertionError) as error:
            raise WrongValue(
                f"a line of {Path(path).name} has no text",
                where=f"{path}:{number}: {line[:60]}",
                why=str(error) or f"it needs a string under {' or '.join(KEYS)}",
                do='write lines such as {"text": "..."} or {"prompt": "...", "completion": "..."}',
            ) from None
        yield "".join(texts)


def rows(
    texts: list[str], tokenizer: PreTrainedTokenizerBase, length: int
) -> dict[str, np.ndarray]:
    """Packs texts into arrays [rows, length]; longer texts are cut. Each text ends with the
    end-of-text token, if there is one.
    """
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids = (tokenizer(text, verbose=False).input_ids + end for text in texts)
    pieces = (tokens[i : i + length] for tokens in ids for i in range(0, len(tokens), length))
    packed = [*pack((piece for piece in pieces if len(piece) > 1), length)]
    return {key: np.stack([row[key] for row in packed]) for key in packed[0]}
