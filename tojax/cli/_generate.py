"""Prompts in, text out."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from tojax.errors import BadCheckpoint, WrongValue
from tojax.hf.checkpoint import Checkpoint, find

console = Console(stderr=True)


def generate(
    source: str, prompt: str, max_new_tokens: int, dtype: str | None, allow_pickle: bool
) -> None:
    """``tojax generate``."""
    with console.status("loading"):
        import tojax

        found = find(source, allow_pickle=allow_pickle)
        model = tojax.from_pretrained(
            found.gguf or found.folder, dtype=dtype, allow_pickle=allow_pickle
        )
        tokenizer = load_tokenizer(found)
    ids = encode(tokenizer, prompt)
    stream(model, tokenizer, ids, room(model.source.module, ids, max_new_tokens))


def load_tokenizer(found: Checkpoint) -> Any:
    """The checkpoint's tokenizer."""
    from transformers import AutoTokenizer

    inside = {"gguf_file": found.gguf.name} if found.gguf else {}
    try:
        return AutoTokenizer.from_pretrained(found.folder, local_files_only=True, **inside)
    except (OSError, ValueError, KeyError) as error:
        raise BadCheckpoint(
            f"{found.folder.name} has no tokenizer that can be read",
            where=str(found.folder),
            why=" ".join(str(error).split())[:200],
            do="add tokenizer.json and its config, or call tojax.generate with token ids",
        ) from None


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
    model: Any, tokenizer: Any, ids: Any, max_new_tokens: int, on_token: Any = None
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
    out: Any = tojax.generate(model, ids, max_new_tokens=max_new_tokens, streamer=streamer)
    return np.asarray(out)
