"""Train the demo checkpoint `examples/tiny-llama`: under a million parameters, writes Python.

Why: examples, tests and the first command a newcomer runs need a language model that is small
enough to live in the repository and good enough that its text can be judged by eye: a wrong
position or mask shows at once as broken indentation. Random weights cannot do that. The corpus is
the Python standard library (`tiny_llama_data.py`), so nothing is downloaded. The model is torch's,
the training is JAX: after an interruption the same command goes on.

    python examples/train_tiny_llama.py --steps 20 --out /tmp/try     # a minute, a smoke test
    python examples/train_tiny_llama.py --overwrite    # the committed checkpoint: two hours
"""

import argparse
import itertools
import json
import math
import platform
import shutil
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax
import torch
from matplotlib.figure import Figure
from tiny_llama_data import encode, read_corpus, train_tokenizer, windows
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

import anyjax

NEW_TOKENS = 96
PROMPTS = ("def main(", "class", "import os", "for i in range(")
WARMUP = 0.03  # of the steps


def build_model(tokenizer) -> LlamaForCausalLM:
    """Grouped-query attention and tied embeddings, as the real ones have."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.04,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def loss_of(model, rows) -> jax.Array:
    """Mean cross-entropy in nats per token of rows [batch, length + 1]."""
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()


def held_out(tokens: np.ndarray, length: int, limit: int) -> list[np.ndarray]:
    """Batches of consecutive windows of the stream, at most `limit` windows."""
    count = min(limit, (len(tokens) - 1) // length)
    starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
    return np.array_split(tokens[starts[:, None] + np.arange(length + 1)], max(1, count // 8))


def continuation(model, tokenizer, prompt: str) -> str:
    """The greedy continuation, prompt included."""
    ids = np.array([tokenizer(prompt).input_ids])
    return tokenizer.decode(anyjax.generate(model, ids, max_new_tokens=NEW_TOKENS)[0].tolist())


class Windows:
    """The batches: the same ones each time that it is iterated, so that a run can go on.

    The last fifth of the steps takes half as many windows of twice the length, so that the
    positions up to `max_position_embeddings` are trained at the price of the shorter ones.
    """

    def __init__(self, tokens: np.ndarray, args: argparse.Namespace):
        self.tokens, self.args = tokens, args

    def __len__(self) -> int:
        return self.args.steps

    def __iter__(self):
        args, rng = self.args, np.random.default_rng(self.args.seed)
        for step in range(1, args.steps + 1):
            late = step > 0.8 * args.steps
            yield windows(self.tokens, args.batch // (1 + late), args.length * (1 + late), rng)


def save(folder: Path, model: anyjax.Model, tokenizer, curve: list[tuple], recipe: str):
    """Write everything beside `folder`, then swap: a reader never sees half a checkpoint."""
    fresh, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    model.save_pretrained(fresh)
    (fresh / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(fresh)
    settings = fresh / "tokenizer_config.json"  # transformers 4 knows the class by its older name
    named = json.loads(settings.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings.write_text(json.dumps(named, indent=2) + "\n")
    lines = ["step,tokens,train,val", *(f"{s},{n},{a:.4f},{b:.4f}" for s, n, a, b, _ in curve)]
    (fresh / "loss.csv").write_text("\n".join(lines) + "\n")
    figure = Figure(figsize=(5, 3), dpi=90, layout="constrained")
    axes = figure.subplots()
    millions = [row[1] / 1e6 for row in curve]
    axes.plot(millions, [row[2] for row in curve], label="train")
    axes.plot(millions, [row[3] for row in curve], label="validation")
    axes.set(xlabel="million tokens seen", ylabel="loss, nats per token")
    axes.legend()
    figure.savefig(fresh / "loss.png")
    (fresh / "README.md").write_text(recipe, encoding="utf-8")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recipe_of(args: argparse.Namespace, model, tokenizer, facts: dict) -> str:
    """The README of the checkpoint: what it is, how it was made, what it can and cannot do."""
    samples = [continuation(model, tokenizer, prompt).rstrip() for prompt in PROMPTS]
    prompts = ", ".join(f"`{prompt}`" for prompt in PROMPTS)
    fenced = "\n\n".join(f"```python\n{sample}\n```" for sample in samples)
    names = ("steps", "seed", "batch", "length", "lr", "vocab")
    flags = " ".join(f"--{name} {getattr(args, name)}" for name in names)
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"""# tiny-llama

A Llama of {size(model):,} parameters that writes text shaped like Python: good enough
to see by eye whether a conversion or a cache is right, and no use for anything else. It indents
well; its programs mean nothing and often do not parse, and greedy text soon repeats itself.
It was trained on windows of at most {2 * args.length} tokens.

Made from the source files of the Python standard library (without tests, codec tables, and lines
that name people or web addresses; another Python version has other files) by

    python examples/train_tiny_llama.py {flags}

| | |
| --- | --- |
{rows}

The loss curve is `loss.csv`, drawn in `loss.png`.

Greedy continuations of {prompts}: {NEW_TOKENS} tokens each,
neither chosen nor edited. A prompt should not end in a space: the tokenizer keeps the space with
the word after it.

{fenced}
"""


def size(model: anyjax.Model) -> int:
    """How many numbers it has learned."""
    return sum(x.size for x in model.params.values())


def make_optimizer(steps: int, peak: float) -> optax.GradientTransformation:
    """Muon for the layers' matrices; AdamW for the embedding, and for the norms without decay."""
    warmup = math.ceil(WARMUP * steps)
    rate = optax.warmup_cosine_decay_schedule(peak / warmup, peak, warmup, steps, peak / 50)
    by_muon = optax.contrib.MuonDimensionNumbers()
    kinds = lambda params: {k: by_muon if "proj" in k else None for k in params}
    return optax.contrib.muon(
        rate, weight_decay=0.1, adam_weight_decay=0.1, adam_b2=0.95, consistent_rms=0.2,
        muon_weight_dimension_numbers=kinds,
        weight_decay_mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params),
    )  # fmt: skip


def fit(args: argparse.Namespace, module, tokens: np.ndarray, val: np.ndarray):
    """Trains in the folder `args.run`; returns the model and the loss curve."""
    tx = make_optimizer(args.steps, args.lr)
    step = anyjax.train.make_step(loss_of, tx, clip=1.0)
    state = anyjax.train.TrainState.create(anyjax.from_torch(module), tx)
    rows, begin = held_out(val, args.length, limit=64), time.process_time()

    def evaluate(state):
        found = anyjax.train.evaluate(state, rows, loss_of)
        minutes = (time.process_time() - begin) / 60
        print(f"step {state.step}/{args.steps}  validation {found['loss']:.3f}  {minutes:.1f} min")
        return {**found, "minutes": minutes}

    options = {"folder": args.run, "evaluate": evaluate, "every": args.report}
    state = anyjax.train.fit(state, step, Windows(tokens, args), **options)
    return state.model, curve_of(args)


def curve_of(args: argparse.Namespace) -> list[tuple]:
    """(step, tokens seen, train and validation loss, minutes of this process) of each report."""
    lines = (args.run / "metrics.jsonl").read_text().splitlines()
    curve, recent = [], []
    for row in map(json.loads, lines):
        if "loss" in row:
            recent.append(row["loss"])
        else:
            seen = row["step"] * args.batch * args.length
            values = np.mean(recent), row["eval_loss"], row["eval_minutes"]
            curve, recent = [*curve, (row["step"], seen, *values)], []
    return curve


def run(args: argparse.Namespace) -> None:
    """Corpus, tokenizer, training, and the folder with everything that describes them."""
    logging.disable_progress_bar()
    sys.stdout.reconfigure(line_buffering=True)
    torch.manual_seed(args.seed)
    texts, kept = read_corpus(args.seed)
    tokenizer = train_tokenizer(texts, args.vocab)
    tokens, val = encode(tokenizer, texts), encode(tokenizer, kept)
    held = f"{len(kept)} files, {len(val):,} tokens"
    data = f"{len(texts)} files, {len(tokens):,} tokens"
    print(f"train on {data}; held out {held}")
    model, curve = fit(args, build_model(tokenizer), tokens, val)
    long, seen = 2 * args.length, curve[-1][1]
    train_loss, val_loss = (
        anyjax.train.evaluate(model, held_out(part, long, limit=200), loss_of)["loss"]
        for part in (tokens, val)
    )
    minutes = [0, *(row[4] for row in curve)]
    # the minutes of a process that went on begin at zero again
    spent = sum(b - a if b > a else b for a, b in itertools.pairwise(minutes))
    facts = {
        "data": f"Python {platform.python_version()}: {data}",
        "held out": f"{held} of {sum(map(len, kept)) / len(val):.2f} characters",
        "tokenizer": f"byte-level BPE, {len(tokenizer)} tokens, learned from the training files",
        "tokens seen": f"{seen:,} ({seen / len(tokens):.1f} epochs)",
        "steps": f"{args.steps} of {args.batch} x {args.length} tokens, the last fifth of"
        f" {args.batch // 2} x {long}",
        "optimizer": "Muon (momentum 0.95, updates of Adam's size) for the layers' matrices, AdamW"
        " (betas 0.9 and 0.95) for the rest; weight decay 0.1, clipped at norm 1; peak"
        f" {args.lr}, {WARMUP:.0%} of the steps warm-up, then cosine",
        "arithmetic": f"float32, JAX {jax.__version__} on {jax.default_backend()}",
        "final loss": f"train {train_loss:.3f}, validation {val_loss:.3f} nats per token"
        f" (windows of {long})",
        "time": f"{spent:.0f} minutes of processor time",
    }
    save(args.out, model, tokenizer, curve, recipe_of(args, model, tokenizer, facts))
    shutil.rmtree(args.run)
    print(f"train {train_loss:.3f}  val {val_loss:.3f}  saved in {args.out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train a tiny Llama on the Python standard library.",
        epilog="Stopped, the same command goes on. A test run: --steps 20 --out /tmp/try",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    here = Path(__file__).resolve().parent / "tiny-llama"
    add = parser.add_argument
    add("--steps", type=int, default=6800, help="optimizer steps")
    add("--seed", type=int, default=0, help="seed of the split, the windows and the weights")
    add("--out", type=Path, default=here, help="folder of the checkpoint, replaced as a whole")
    add("--overwrite", action="store_true", help="replace the folder if it is there")
    add("--batch", type=int, default=16, help="windows per step (even)")
    add("--length", type=int, default=256, help="tokens per window; twice as many at the end")
    add("--lr", type=float, default=4e-3, help="peak learning rate")
    add("--vocab", type=int, default=2048, help="tokens in the vocabulary")
    add("--report", type=int, default=100, help="steps between reports and checkpoints")
    add("--run", type=Path, help="folder of the run, removed at the end; OUT.run if not given")
    args = parser.parse_args()
    args.run = args.run or args.out.with_name(args.out.name + ".run")
    if args.out.exists() and not args.overwrite:
        parser.error(f"{args.out} exists: choose another --out, or give --overwrite")
    if args.out.exists() and not (args.out / "config.json").exists():
        parser.error(f"{args.out} is no checkpoint: this script will not replace it")
    run(args)


if __name__ == "__main__":
    main()
