"""One measurement: python worker.py CASE ADAPTER; run.py starts it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
REPEATS, NEW, PROMPT = 15, 64, 16


def tokens(length: int, vocab: int):
    import torch

    return torch.randint(1, vocab, (1, length), generator=torch.Generator().manual_seed(1))


def gpt2(adapter) -> dict:
    """Conversion plus first call, and the best of following calls."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    module = GPT2LMHeadModel(GPT2Config()).eval()
    ids = tokens(128, 32000)
    began = time.perf_counter()
    call = adapter.forward(module, ids)
    out = call()
    first = time.perf_counter() - began
    return {
        "first_s": first,
        "steady_ms": 1e3 * min(timed(call) for _ in range(REPEATS)),
        "check": float(abs(out).mean()),
    }


def decode(adapter) -> dict:
    """Greedy decoding of a small Llama."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=688,
        vocab_size=1000,
    )
    config = LlamaConfig(**sizes, max_position_embeddings=512, eos_token_id=None, pad_token_id=0)
    module = LlamaForCausalLM(config).eval()
    began = time.perf_counter()
    call = adapter.generate(module, tokens(PROMPT, 1000), NEW)
    out = call()
    first = time.perf_counter() - began
    return {
        "first_s": first,
        "s_per_token": min(timed(call) for _ in range(5)) / NEW,
        "check": int(out.sum()),
    }


def demo() -> dict:
    """The whole command, as a user starts it."""
    root = Path(__file__).resolve().parents[1]
    command = [
        sys.executable,
        "-m",
        "tojax",
        "run",
        "examples/tiny-llama",
        "--prompt",
        "def main(",
        "-n",
        "32",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    line = next(x for x in done.stdout.splitlines() if x.startswith("first token"))
    return {"first_token_s": float(line.split()[2])}


def timed(call) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    case, name = sys.argv[1:]
    if case == "demo":
        print("RESULT " + json.dumps(demo()))
    else:
        import torch

        torch.set_num_threads(os.cpu_count() or 1)
        result = {"gpt2": gpt2, "decode": decode}[case](
            importlib.import_module(f"adapters.{name}_")
        )
        print("RESULT " + json.dumps(result))
