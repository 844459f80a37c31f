"""Prompts in, text out."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tojax.cli import _source
from tojax.errors import BadCheckpoint, WrongValue

console = Console(stderr=True)


@dataclass(frozen=True)
class Options:
    """What the command line says, beside the source."""

    prompt: str | None
    max_new_tokens: int
    temperature: float | None
    seed: int
    adapter: str | None
    tokenizer: str | None
    dtype: str | None
    allow_pickle: bool

    def drawn(self) -> dict[str, Any]:
        """Arguments of ``tojax.generate`` that pick tokens; the likeliest ones by default."""
        if not self.temperature:
            return {}
        import jax

        key = jax.random.key(self.seed)
        return {"do_sample": True, "temperature": self.temperature, "rng": key}


def generate(source: str, asked: Options) -> None:
    """``tojax generate``."""
    given = _source.named(source, asked.adapter, allow_pickle=asked.allow_pickle)
    prompt = prompt_of(asked.prompt)
    with console.status("loading"):
        model = _source.model_of(given, dtype=asked.dtype, allow_pickle=asked.allow_pickle)
        tokenizer = tokenizer_of(given, asked.tokenizer)
    ids = encode(tokenizer, prompt)
    new_tokens = room(model.source.module, ids, asked.max_new_tokens)
    stream(model, tokenizer, ids, new_tokens, **asked.drawn())


def prompt_of(said: str | None) -> str:
    """The prompt: what was said, - for all of standard input; asked for on a terminal."""
    if said is None and sys.stdin is not None and sys.stdin.isatty():
        print("prompt: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().removesuffix("\n")
    return sys.stdin.read().removesuffix("\n") if said == "-" else said or ""


def tokenizer_of(given: _source.Named, other: str | None = None) -> Any:
    """The tokenizer of a folder that was asked for, else of the adapter or the checkpoint."""
    if other is not None:
        return load_tokenizer(Path(other).expanduser())
    gguf = given.found.gguf
    return load_tokenizer(given.tokenizer_folder(), gguf.name if gguf else None)


def load_tokenizer(folder: Path, gguf: str | None = None) -> Any:
    """The folder's tokenizer, or the one inside of a GGUF file."""
    with _without_torch():
        from transformers import AutoTokenizer

    inside = {"gguf_file": gguf} if gguf else {}
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, **inside)
    except (OSError, ValueError, KeyError) as error:
        raise BadCheckpoint(
            f"{folder.name} has no tokenizer that can be read",
            where=str(folder),
            why=" ".join(str(error).split())[:200],
            do="add tokenizer.json and its config, or call tojax.generate with token ids",
        ) from None


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """While this is open, transformers does not tell that torch is not installed: tokenizers and
    saved models need none.
    """
    told = lambda record: not str(record.msg).startswith(("PyTorch was not", "None of PyTorch"))
    logger = logging.getLogger("transformers")
    logger.addFilter(told)
    try:
        yield
    finally:
        logger.removeFilter(told)


def encode(tokenizer: Any, prompt: str) -> np.ndarray:
    """Token ids [1, length]; an empty prompt is the start token."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # the shell's bytes stand in it as they came
        raise WrongValue(
            "the prompt is not UTF-8",
            where=f"byte {prompt[error.start]!a}, after {prompt[: error.start][-20:]!r}",
            why="tokenizers read text",
            do="convert it: iconv -f LATIN1 -t UTF-8",
        ) from None
    ids = tokenizer(prompt, verbose=False).input_ids if prompt else []
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    return np.asarray([ids or [start or 0]])


def room(module: Any, ids: np.ndarray, max_new_tokens: int) -> int:
    """How many new tokens the model has positions for, said where that is less than asked for."""
    config = module.config.get_text_config(decoder=True)
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1 or ids.shape[1] + max_new_tokens <= most:
        return max_new_tokens
    left = most - ids.shape[1]
    if left < 1:
        raise WrongValue(
            f"the prompt has {ids.shape[1]} tokens, the model {most} positions",
            why="max_position_embeddings in config.json says so",
            do="shorten the prompt",
        )
    console.print(f"the model has {most} positions: {left} new tokens, not {max_new_tokens}")
    return left


def stream(
    model: Any, tokenizer: Any, ids: Any, max_new_tokens: int, on_token: Any = None, **drawn: Any
) -> np.ndarray:
    """Prints prompt and continuation as it comes."""
    from transformers import TextStreamer

    import tojax

    class Streamer(TextStreamer):
        def put(self, value):
            super().put(value)
            if on_token is not None:
                on_token(value)

    streamer = Streamer(tokenizer, skip_special_tokens=True)
    asked = {"max_new_tokens": max_new_tokens, "streamer": streamer, **drawn}
    out: Any = tojax.generate(model, ids, **asked)
    return np.asarray(out)
