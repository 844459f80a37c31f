"""Tokenizers of saved models without transformers, whose import loads torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"


class Encoded(NamedTuple):
    """The token ids of a text."""

    input_ids: list[int]


class FastTokenizer:
    """The part of transformers' fast tokenizers that ``anyjax generate`` uses."""

    def __init__(self, backend: Tokenizer, config: dict[str, str | dict[str, str]]):
        self.backend = backend
        self.bos_token_id, self.eos_token_id = (
            self._id(config.get(name)) for name in ("bos_token", "eos_token")
        )

    def _id(self, token: str | dict[str, str] | None) -> int | None:
        text = token.get("content") if isinstance(token, dict) else token
        return None if text is None else self.backend.token_to_id(text)

    def __call__(self, text: str, verbose: bool = True) -> Encoded:
        """Returns the ids of a text, with the special tokens around it."""
        return Encoded(self.backend.encode(text).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Returns the text of ids."""
        return self.backend.decode(ids, skip_special_tokens=skip_special_tokens)


def fast_tokenizer(folder: Path) -> FastTokenizer | None:
    """Returns the tokenizer that transformers saved in a folder, None where it needs transformers:
    without a tokenizer.json, or if its texts are cleaned afterwards.
    """
    try:
        from tokenizers import Tokenizer

        config = json.loads((folder / CONFIG).read_text())
        if config.get("clean_up_tokenization_spaces") or not (folder / FILE).is_file():
            return None
        backend = Tokenizer.from_file(str(folder / FILE))
    except Exception:  # tokenizers raises that class itself; transformers' error says more
        return None
    backend.no_truncation()
    backend.no_padding()
    return FastTokenizer(backend, config)
