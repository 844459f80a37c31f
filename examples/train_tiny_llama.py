"""Train the demo checkpoint `examples/tiny-llama`: under a million parameters, writes Python.

Why: examples, tests and the first command a newcomer runs need a language model that is small
enough to live in the repository and good enough that its text can be judged by eye: a wrong
position or mask shows at once as broken indentation. Random weights cannot do that. The corpus is
the Python standard library (`tiny_llama_data.py`), so nothing is downloaded.

    python examples/train_tiny_llama.py --steps 20 --out /tmp/try     # half a minute, a smoke test
    python examples/train_tiny_llama.py --overwrite                   # the committed checkpoint
"""

import argparse
import json
import platform
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from tiny_llama_data import WARMUP, encode, learning_rate, read_corpus, train_tokenizer, windows
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

NEW_TOKENS = 96
PROMPTS = ("def main(", "class", "import os", "for i in range(")


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


def loss_of(model: LlamaForCausalLM, rows: np.ndarray) -> torch.Tensor:
    """Mean cross-entropy in nats per token; matrix products in bfloat16, parameters in float32."""
    rows = torch.from_numpy(rows).long()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, tokens: np.ndarray, length: int, limit: int) -> float:
    """Mean loss over consecutive windows of the stream, at most `limit` of them."""
    count = min(limit, (len(tokens) - 1) // length)
    starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
    rows = tokens[starts[:, None] + np.arange(length + 1)]
    return float(np.mean([loss_of(model, row[None]).item() for row in rows]))


@torch.no_grad()
def continuation(model: LlamaForCausalLM, tokenizer, prompt: str) -> str:
    """The greedy continuation, prompt included."""
    ids = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    out = model.generate(**ids, max_new_tokens=NEW_TOKENS, do_sample=False)
    return tokenizer.decode(out[0], skip_special_tokens=True)


def save(folder: Path, model: LlamaForCausalLM, tokenizer, curve: list[tuple], recipe: str):
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
    lines = ["step,tokens,train,val", *(f"{s},{n},{a:.4f},{b:.4f}" for s, n, a, b in curve)]
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

A Llama of {model.num_parameters():,} parameters that writes text shaped like Python: good enough
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


def make_optimizer(model: LlamaForCausalLM) -> torch.optim.Optimizer:
    """AdamW; the norms' vectors are not decayed."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def fit(args: argparse.Namespace, model, tokenizer, tokens: np.ndarray, val: np.ndarray):
    """The torch loop, ended early by Ctrl-C; returns the tokens seen and the loss curve.

    The last fifth of the steps takes half as many windows of twice the length, so that the
    positions up to `max_position_embeddings` are trained at the price of the shorter ones.
    """
    rng, optimizer = np.random.default_rng(args.seed), make_optimizer(model)
    curve, recent, seen, begin = [], [], 0, time.monotonic()
    try:
        for step in range(1, args.steps + 1):
            late = step > 0.8 * args.steps
            batch, length = args.batch // (1 + late), args.length * (1 + late)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step - 1, args.steps, args.lr)
            loss = loss_of(model, windows(tokens, batch, length, rng))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            recent.append(loss.item())
            seen += batch * length
            if step % args.report == 0 or step == args.steps:
                train, held_out = np.mean(recent), evaluate(model, val, args.length, limit=64)
                curve.append((step, seen, train, held_out))
                recent, minutes = [], (time.monotonic() - begin) / 60
                left = minutes * (args.steps / step - 1)
                line = f"step {step}/{args.steps}  train {train:.3f}  validation {held_out:.3f}"
                print(f"{line}  {seen / minutes / 60:,.0f} tokens/s  {left:.0f} min left")
                if step % (4 * args.report) == 0:
                    save(args.out, model, tokenizer, curve, "Training has not finished.\n")
    except KeyboardInterrupt:
        print(f"stopped at step {step}; what was learned so far is saved")
    return seen, curve


def run(args: argparse.Namespace) -> None:
    """Corpus, tokenizer, training, and the folder with everything that describes them."""
    logging.disable_progress_bar()
    sys.stdout.reconfigure(line_buffering=True)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    begin = time.monotonic()
    texts, held_out = read_corpus(args.seed)
    tokenizer = train_tokenizer(texts, args.vocab)
    tokens, val = encode(tokenizer, texts), encode(tokenizer, held_out)
    model = build_model(tokenizer)
    held = f"{len(held_out)} files, {len(val):,} tokens"
    data = f"{len(texts)} files, {len(tokens):,} tokens"
    print(f"train on {data}; held out {held}; {model.num_parameters():,} parameters")
    seen, curve = fit(args, model, tokenizer, tokens, val)
    long = 2 * args.length
    train_loss = evaluate(model, tokens, long, limit=200)
    val_loss = evaluate(model, val, long, limit=200)
    characters = sum(map(len, held_out)) / len(val)
    facts = {
        "data": f"Python {platform.python_version()}: {data}",
        "held out": f"{held} of {characters:.2f} characters",
        "tokenizer": f"byte-level BPE, {len(tokenizer)} tokens, learned from the training files",
        "tokens seen": f"{seen:,} ({seen / len(tokens):.1f} epochs)",
        "steps planned": f"{args.steps} of {args.batch} x {args.length} tokens, the last fifth of"
        f" {args.batch // 2} x {long}",
        "optimizer": f"AdamW, betas 0.9 and 0.95, weight decay 0.1, clipped at norm 1; peak"
        f" {args.lr}, {WARMUP:.0%} of the steps warm-up, then cosine",
        "arithmetic": "bfloat16 autocast, float32 parameters, saved as float32",
        "final loss": f"train {train_loss:.3f}, validation {val_loss:.3f} nats per token"
        f" (windows of {long})",
        "time": f"{(time.monotonic() - begin) / 60:.0f} minutes of wall time, one CPU thread",
    }
    save(args.out, model, tokenizer, curve, recipe_of(args, model, tokenizer, facts))
    print(f"train {train_loss:.3f}  val {val_loss:.3f}  saved in {args.out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train a tiny Llama on the Python standard library, on one CPU core.",
        epilog="Ctrl-C saves what has been learned so far. A test run: --steps 20 --out /tmp/try",
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
    add("--report", type=int, default=100, help="steps between reports; saved every four reports")
    args = parser.parse_args()
    if args.out.exists() and not args.overwrite:
        parser.error(f"{args.out} exists: choose another --out, or give --overwrite")
    if args.out.exists() and not (args.out / "config.json").exists():
        parser.error(f"{args.out} is no checkpoint: this script will not replace it")
    run(args)


if __name__ == "__main__":
    main()
