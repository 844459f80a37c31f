"""One measurement: python worker.py CASE ADAPTER; run.py starts it."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
REPEATS, NEW, PROMPT = 15, 64, 16
LASTING = 3.0  # seconds of decoding to take the best call of: short calls vary most


def tokens(length: int, vocab: int, batch: int = 1):
    import torch

    return torch.randint(1, vocab, (batch, length), generator=torch.Generator().manual_seed(1))


def call_times(make) -> tuple[dict, np.ndarray]:
    """Seconds of ``make`` and the first call, the best of following calls, and the first result."""
    began = time.perf_counter()
    call = make()
    out = call()
    first = time.perf_counter() - began
    return {"first_s": first, "steady_ms": 1e3 * min(timed(call) for _ in range(REPEATS))}, out


def forward(module, inputs, adapter) -> dict:
    module, inputs = module(), inputs()
    times, out = call_times(lambda: adapter.forward(module, inputs))
    return times | {"check": float(abs(out).mean())}


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()).eval()


def image_model(kind: str):
    import transformers as t

    config = getattr(t, f"{kind}Config")(num_labels=1000)
    return getattr(t, f"{kind}ForImageClassification")(config).eval()


def image() -> dict:
    import torch

    return {"pixel_values": torch.randn(1, 3, 224, 224)}


def llama(sizes: dict):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**sizes, max_position_embeddings=512, eos_token_id=None, pad_token_id=0)
    return LlamaForCausalLM(config).eval()


def train(adapter) -> dict:
    """A step of Adam on 4 x 128 tokens."""
    ids = tokens(128, 1000, 4).numpy().astype("int32")
    step = adapter.train(llama(SMALL).train())
    began = time.perf_counter()
    losses = [step(ids)]
    first = time.perf_counter() - began
    times = []
    for _ in range(REPEATS):
        times.append(timed(lambda: losses.append(step(ids))))
    return {"first_s": first, "step_ms": 1e3 * min(times), "check": losses[3]}


def keras(name: str, adapter) -> dict:
    """A Keras model, from what TensorFlow has not traced yet."""
    import keras
    import tensorflow as tf
    from tf_models import CASES as models

    keras.utils.set_random_seed(0)
    model, shape = models[name]()
    function = tf.function(lambda x: model(x, training=False), autograph=False)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    times, out = call_times(lambda: adapter.keras(function, x))
    return times | {"check": float(abs(out).mean())}


def decode(sizes: dict, batch: int, adapter) -> dict:
    """Greedy decoding of a Llama; ``bandwidth`` is the time of one plain reduction over as many
    bytes as the weights have, divided by the time of a step.
    """
    import torch

    module = llama(sizes)
    began = time.perf_counter()
    call = adapter.generate(module, tokens(PROMPT, 1000, batch), NEW)
    out = call()
    first = time.perf_counter() - began
    read = sum(p.nbytes for name, p in module.named_parameters() if "embed_tokens" not in name)
    memory = torch.ones(read // 4)
    calls, plain = [], []  # in turns: the memory's speed changes with what else the machine does
    for _ in range(max(5, round(LASTING / timed(call)))):
        calls.append(timed(call))
        plain.append(min(timed(memory.sum) for _ in range(3)))
    return {
        "first_s": first,
        "s_per_token": min(calls) / NEW / batch,
        "bandwidth": statistics.median(NEW * p / c for p, c in zip(plain, calls, strict=True)),
        "check": int(out.sum()),
    }


def demo() -> dict:
    """The whole command, as a user starts it."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "anyjax", "run", "examples/tiny-llama"]
    command += ["--prompt", "def main(", "-n", "32"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    line = next(x for x in done.stdout.splitlines() if x.startswith("first token"))
    return {"first_token_s": float(line.split()[2])}


def timed(call) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def sizes(hidden: int, layers: int, heads: int, groups: int, inner: int, vocab: int) -> dict:
    return dict(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        intermediate_size=inner,
        vocab_size=vocab,
    )


SMALL = sizes(256, 4, 4, 4, 688, 1000)
LARGE = sizes(1024, 16, 16, 4, 2816, 32000)
WIDE = sizes(4096, 2, 32, 8, 11008, 8000)
NARROW = sizes(128, 8, 4, 4, 256, 1000)
words = lambda length, vocab: {"input_ids": tokens(length, vocab)}
narrow = lambda layers: partial(llama, NARROW | {"num_hidden_layers": layers})
CASES = {
    "gpt2": partial(forward, gpt2, partial(words, 128, 32000)),
    "resnet50": partial(forward, partial(image_model, "ResNet"), image),
    "vit": partial(forward, partial(image_model, "ViT"), image),
    "layers_8": partial(forward, narrow(8), partial(words, 32, 1000)),
    "layers_32": partial(forward, narrow(32), partial(words, 32, 1000)),
    "train": train,
    "decode_small": partial(decode, SMALL, 1),
    "decode_small_8": partial(decode, SMALL, 8),
    "decode": partial(decode, LARGE, 1),
    "decode_8": partial(decode, LARGE, 8),
    "decode_wide": partial(decode, WIDE, 1),
}

LOADERS = {"torch_eager": "transformers_read"}

if __name__ == "__main__":
    case, name, folder = sys.argv[1:]
    if case == "demo":
        result = demo()
    elif case == "load":
        import load

        load.warm(Path(folder))
        result = load.work(LOADERS.get(name, name), folder)
    elif case.startswith("keras_"):
        result = keras(case.removeprefix("keras_"), importlib.import_module(f"adapters.{name}_"))
    else:
        import torch

        torch.set_num_threads(os.cpu_count() or 1)
        torch.manual_seed(0)
        result = CASES[case](importlib.import_module(f"adapters.{name}_"))
    print("RESULT " + json.dumps(result))
