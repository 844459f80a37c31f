"""Prompts in, text out."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from tojax.errors import BadCheckpoint
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
    stream(model, tokenizer, encode(tokenizer, prompt), max_new_tokens)


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
    ids = tokenizer(prompt).input_ids if prompt else []
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    return np.asarray([ids or [start or 0]])


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
