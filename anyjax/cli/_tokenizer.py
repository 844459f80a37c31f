"""Prompts, and the tokenizers of checkpoints and saved models."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from anyjax.errors import BadCheckpoint, WrongValue

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"


def prompt_of(prompt: str | None) -> str:
    """Returns the prompt: the option's text, or standard input for -. Without one it is read from
    a terminal.
    """
    if prompt is None and sys.stdin is not None and sys.stdin.isatty():
        print("prompt: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().removesuffix("\n")
    return sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt or ""


def load(folder: Path, gguf: str | None = None) -> Any:
    """Loads the folder's tokenizer, or that inside of a GGUF file."""
    with _without_torch():
        from transformers import AutoTokenizer

    inside = {"gguf_file": gguf} if gguf else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **inside
        )
    except MemoryError:
        raise
    except Exception as error:  # the tokenizers package raises that class itself
        has_plain_text = isinstance(error, (OSError, ValueError))
        prefix = "" if has_plain_text else f"{type(error).__name__}: "
        raise _unreadable(folder, f"{prefix}{error}") from None
    if not isinstance(tokenizer.model_max_length, (int, float)):
        raise _unreadable(folder, f"its model_max_length is {tokenizer.model_max_length!r}")
    return tokenizer


def _unreadable(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"{folder.name} has no tokenizer that can be read",
        where=str(folder),
        why=" ".join(why.split())[:200],
        do="add tokenizer.json and its config, or call anyjax.generate with token ids",
    )


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Silences transformers' warning that torch is not installed: tokenizers don't need it."""
    is_other = lambda record: not str(record.msg).startswith(("PyTorch was not", "None of PyTorch"))
    logger = logging.getLogger("transformers")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def encode(tokenizer: PreTrainedTokenizerBase, prompt: str) -> np.ndarray:
    """Returns token ids [1, length]; an empty prompt becomes the start token."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # Python keeps bytes of the shell as surrogates
        raise WrongValue(
            "the prompt is not UTF-8",
            where=f"byte {prompt[error.start]!a}, after {prompt[: error.start][-20:]!r}",
            why="tokenizers read text",
            do="convert it: iconv -f LATIN1 -t UTF-8",
        ) from None
    ids = tokenizer(prompt, verbose=False).input_ids if prompt else []
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    return np.asarray([ids or [start or 0]])


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
