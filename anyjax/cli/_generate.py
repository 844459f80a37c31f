"""``anyjax generate``: text that continues a prompt."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from anyjax.cli import _shown, _source
from anyjax.cli._stages import Stages
from anyjax.cli.options import Generate
from anyjax.errors import BadCheckpoint, WrongValue

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from anyjax.cli._tokenizer import FastTokenizer

console = Console(stderr=True)


def generate(options: Generate, start: float) -> None:
    """Runs ``anyjax generate``."""
    stages = Stages(start)
    checkpoint = _source.resolve(options.source, options.adapter, allow_pickle=options.allow_pickle)
    prompt = prompt_of(options.prompt)
    with _shown.progress("loading"):
        import anyjax.hf.generation._generate
        import anyjax.hf.loading.load  # and torch, transformers, JAX

        stages.end("imports")
        model = _source.model_of(checkpoint, dtype=options.dtype, allow_pickle=options.allow_pickle)
        stages.end("weights")
        tokenizer = tokenizer_of(checkpoint, options.tokenizer)
        stages.end("tokenizer")
    ids: Any = encode(tokenizer, prompt)
    new_tokens = room(model.source.module, ids, options.max_new_tokens)
    stages.listen()
    if options.json:
        with _shown.progress("generating"):
            sampling = options.sampling()
            tokens: Any = anyjax.generate(model, ids, max_new_tokens=new_tokens, **sampling)
    else:
        puts = itertools.count()  # the prompt comes first
        first_token = lambda _: stages.end("first token") if next(puts) else None
        tokens = stream(model, tokenizer, ids, new_tokens, first_token, **options.sampling())
    stages.end("tokens")
    report(options, model.source.name, tokenizer, ids, np.asarray(tokens), stages)


def report(
    options: Generate,
    name: str,
    tokenizer: PreTrainedTokenizerBase | FastTokenizer,
    ids: np.ndarray,
    out: np.ndarray,
    stages: Stages,
) -> None:
    """Prints the text as JSON with ``--json``, and the seconds of each stage with ``--profile``."""
    if options.json:
        text = tokenizer.decode(out[0].tolist(), skip_special_tokens=True)
        counts = {"prompt_tokens": ids.shape[1], "tokens": out.shape[1] - ids.shape[1]}
        _shown.as_json({"model": name, "text": text, **counts, "seconds": stages.seconds})
    if options.profile:
        console.print(_shown.table(["stage", "seconds"], stages.rows(), right=(1,)))


def prompt_of(prompt: str | None) -> str:
    """Returns the prompt: the option's text, or standard input for -. Without one it is read from
    a terminal.
    """
    if prompt is None and sys.stdin is not None and sys.stdin.isatty():
        print("prompt: ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().removesuffix("\n")
    return sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt or ""


def tokenizer_of(checkpoint: _source.ResolvedSource, folder: str | None = None) -> Any:
    """Loads the tokenizer of a folder, by default that of the adapter or the checkpoint."""
    if folder is not None:
        return load_tokenizer(Path(folder).expanduser())
    gguf = checkpoint.checkpoint.gguf
    return load_tokenizer(checkpoint.tokenizer_folder(), gguf.name if gguf else None)


def load_tokenizer(folder: Path, gguf: str | None = None) -> Any:
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


def room(module: torch.nn.Module, ids: np.ndarray, max_new_tokens: int) -> int:
    """Returns how many new tokens the model has positions for; prints a note if it is fewer."""
    config = module.config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    if (
        not isinstance(positions, int)
        or positions < 1
        or ids.shape[1] + max_new_tokens <= positions
    ):
        return max_new_tokens
    remaining = positions - ids.shape[1]
    if remaining < 1:
        raise WrongValue(
            f"the prompt has {ids.shape[1]} tokens, the model {positions} positions",
            why="max_position_embeddings in config.json says so",
            do="shorten the prompt",
        )
    console.print(
        f"the model has {positions} positions: {remaining} new tokens, not {max_new_tokens}"
    )
    return remaining


def stream(
    model: Any, tokenizer: Any, ids: Any, max_new_tokens: int, on_token: Any = None, **sampling: Any
) -> np.ndarray:
    """Prints prompt and continuation token by token; returns all ids."""
    from transformers import TextStreamer

    import anyjax

    class Streamer(TextStreamer):
        prompt: Any = None
        has_printed_prompt = False

        def put(self, value):
            if self.prompt is None:
                self.prompt = value  # it is printed with the first token, after "compiling"
            else:
                self.print_prompt()
                super().put(value)
            if on_token is not None:
                on_token(value)

        def end(self):
            self.print_prompt()
            super().end()

        def print_prompt(self):
            if not self.has_printed_prompt:
                self.has_printed_prompt = True
                bar.stop()
                super().put(self.prompt)

    with _shown.progress("compiling") as bar:
        streamer = Streamer(tokenizer, skip_special_tokens=True)
        options = {"max_new_tokens": max_new_tokens, "streamer": streamer, **sampling}
        out: Any = anyjax.generate(model, ids, **options)
    return np.asarray(out)
