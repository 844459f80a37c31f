"""The data of `train_tiny_llama.py`: the standard library as one stream of tokens, without torch.

The corpus is the source of the Python that runs the script, so nothing is downloaded; the order of
the files depends on the seed alone.
"""

import random
import re
import sysconfig
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END, PAD = "<|endoftext|>", "<|pad|>"
# Tests and bundled tools are not library code; the codec tables and the topic texts are not code
# at all; _sysconfigdata and config-* hold the paths of the machine that built the interpreter.
SKIPPED_FOLDERS = {"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__"}
SKIPPED_FOLDERS |= {"encodings", "pydoc_data"}
SKIPPED_PREFIXES = ("_sysconfigdata", "config-")
# Lines about people and places on the web: nothing a demo model should recite.
DROPPED_LINES = re.compile(
    r"\bauthors?\b|__author__|__credits__|copyright|(written|contributed) by|\w@\w+\.\w|://|pypi",
    re.IGNORECASE,
)


def read_corpus(seed: int, held_out: float = 0.05) -> tuple[list[str], list[str]]:
    """Texts of the standard library's files: (train, validation), split by file."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if SKIPPED_FOLDERS & set(parts) or any(p.startswith(SKIPPED_PREFIXES) for p in parts):
            continue
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        texts.append("".join(line for line in lines if not DROPPED_LINES.search(line)))
    texts = [text for text in texts if text.strip()]
    random.Random(seed).shuffle(texts)
    cut = max(1, round(held_out * len(texts)))
    return texts[cut:], texts[:cut]


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE: every text comes back exactly, and runs of indentation become tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=END,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> np.ndarray:
    """All texts as one int32 stream, each file followed by the end-of-text token."""
    rows = tokenizer.backend_tokenizer.encode_batch(texts)
    end = [tokenizer.eos_token_id]
    return np.concatenate([np.array(row.ids + end, np.int32) for row in rows])


def windows(tokens: np.ndarray, batch: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Random windows of the stream: int32[batch, length + 1], inputs and the token after each."""
    starts = rng.integers(0, len(tokens) - length, batch)
    return tokens[starts[:, None] + np.arange(length + 1)]
