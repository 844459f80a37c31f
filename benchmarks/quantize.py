"""Weights in fewer bytes: their size, perplexity on held-out text, and the speed of decoding, the
kinds taking turns.

python benchmarks/quantize.py [--repeats 7] [--layers 12] [--kinds float32 int8 int8/16 Q8_0 ...]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import transformers
from rich.console import Console
from rich.table import Table

import anyjax
from anyjax.model import Model

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path[:0] = [str(EXAMPLES), str(Path(__file__).parent)]
import gguf_file  # noqa: E402
from tiny_llama_data import encode, read_corpus  # noqa: E402

KINDS = ("float32", "bfloat16", "int8", "fp8", "int4", "nf4")
GGUF = ("Q8_0", "Q5_0", "Q4_0")  # written to a file, and its blocks kept
PROMPT, SHORT, LONG = 8, 8, 40  # tokens


def held(model: Model, kind: str) -> Model:
    """The model with weights of this kind."""
    if kind == "float32":
        return model
    if kind == "bfloat16":
        return model.with_params({k: x.astype(jnp.bfloat16) for k, x in model.params.items()})
    if kind in GGUF:
        with tempfile.TemporaryDirectory() as folder:
            gguf_file.write(model.to_torch(), Path(folder) / "x.gguf", kind)
            read = anyjax.from_pretrained(Path(folder) / "x.gguf", dequantize=False)
        read.source.module.generation_config = model.source.module.generation_config
        return read
    kind, _, block = kind.partition("/")
    return anyjax.transforms.quantize(model, kind, block=int(block) if block else None)


def size(model: Model) -> int:
    """Bytes of weights."""
    return sum(x.nbytes for x in (*model.params.values(), *model.state.values()))


def texts(length: int = 256, rows: int = 64) -> np.ndarray:
    """Windows of the files that tiny-llama was not trained on, int32[rows, length + 1]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(EXAMPLES / "tiny-llama")
    tokens = encode(tokenizer, read_corpus(seed=0)[1])
    starts = np.linspace(0, len(tokens) - length - 1, rows).astype(int)
    return tokens[starts[:, None] + np.arange(length + 1)]


def perplexity(model: Model, rows: np.ndarray) -> float:
    """exp of the mean cross-entropy of each next token."""
    losses = []
    for part in np.array_split(rows, 8):
        scores = jax.nn.log_softmax(model(part[:, :-1]).logits.astype(jnp.float32))
        losses.append(-jnp.take_along_axis(scores, part[:, 1:, None], -1).mean())
    return float(jnp.exp(jnp.stack(losses).mean()))


def llama(layers: int) -> Model:
    """Random weights; 12 layers have 220 million."""
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16}
    config = transformers.LlamaConfig(
        vocab_size=32000, num_hidden_layers=layers, eos_token_id=None, bos_token_id=0, **sizes
    )
    return anyjax.from_torch(transformers.LlamaForCausalLM(config).eval())


def decoding(model: Model) -> Callable[[], float]:
    """Measures seconds a token: the time of a long text less that of a short one."""
    ids = np.arange(2, 2 + PROMPT)[None]

    def took(count: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(anyjax.generate(model, ids, max_new_tokens=count, do_sample=False))
        return time.perf_counter() - began

    took(SHORT), took(LONG)
    return lambda: (took(LONG) - took(SHORT)) / (LONG - SHORT)


def speeds(model: Model, kinds: tuple[str, ...], repeats: int) -> dict[str, tuple[int, float]]:
    """(bytes, median seconds a token) of each kind."""
    models = {kind: held(model, kind) for kind in kinds}
    measures = {kind: decoding(each) for kind, each in models.items()}
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind, measure in measures.items():
            found[kind].append(measure())
    return {k: (size(models[k]), statistics.median(v)) for k, v in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    args = parser.parse_args()
    tiny, rows = anyjax.from_pretrained(EXAMPLES / "tiny-llama"), texts()
    quality = {kind: perplexity(held(tiny, kind), rows) for kind in args.kinds}
    first = args.kinds[0]
    for name, model in (("tiny-llama", tiny), ("random Llama", llama(args.layers))):
        title = f"{name}, {sum(x.size for x in model.params.values()) / 1e6:.0f} M numbers"
        table = Table("weights", "MB", f"of {first}", "tokens/s", f"of {first}", title=title)
        if model is tiny:
            table.add_column("perplexity")
            table.add_column(f"above {first}")
        found = speeds(model, tuple(args.kinds), args.repeats)
        whole, once = found[first]
        for kind, (count, each) in found.items():
            cells = [kind, f"{count / 1e6:.1f}", f"{count / whole:.2f}"]
            cells += [f"{1 / each:.1f}", f"{once / each:.2f}"]
            if model is tiny:
                more = quality[kind] / quality[first] - 1
                cells += [f"{quality[kind]:.3f}", f"{more:+.2%}"]
            table.add_row(*cells)
        Console().print(table)


if __name__ == "__main__":
    main()
