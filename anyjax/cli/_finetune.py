"""A language model trained further on texts: adapters in PEFT's format, a curve, checkpoints."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
from rich.console import Console

from anyjax import train
from anyjax.cli import _curve, _shown, _texts, _tokenizer
from anyjax.cli.writing import Finetune
from anyjax.errors import Unsupported
from anyjax.hf.loading.find.checkpoint import find_checkpoint
from anyjax.typing import PyTree
from anyjax.units import size

if TYPE_CHECKING:
    from anyjax.model import Model

console = Console(stderr=True)
WARMUP = 0.05  # of all steps
HELD_OUT = 20  # every 20th row is for evaluation


def finetune(options: Finetune) -> None:
    """Runs ``anyjax finetune``."""
    texts = _texts.read_texts(options.data)
    with _shown.progress("loading"):
        import anyjax

        checkpoint = find_checkpoint(options.source)
        model = anyjax.from_pretrained(checkpoint.folder).train()
        tokenizer = _tokenizer.load(checkpoint.folder)
    rows = _texts.rows(texts, tokenizer, min(options.length, positions(model, options.length)))
    held_out, training = split_rows(rows)
    base_size = sum(x.size for x in model.params.values())
    model = train.lora(
        model, options.rank, options.targets or linears(model), dora=options.dora,
        quantize=options.quantize, rng=options.seed,
    )  # fmt: skip
    warmup = max(1, int(options.steps * WARMUP))
    rate = optax.warmup_cosine_decay_schedule(
        0, options.rate, warmup, max(options.steps, warmup + 1)
    )
    tx = optax.adamw(rate)
    step = train.make_step(loss_and_tokens, tx, clip=1.0)
    state = train.TrainState.create(model, tx, rng=options.seed)
    batches = train.Batches(
        training, min(options.batch, len(training["input_ids"])), key=options.seed
    )
    about = plan(model, base_size, training, held_out, batches, options)
    if options.dry_run:
        about["memory"] = memory(step, state, next(iter(batches)))
        return _shown.as_json(about) if options.json else None
    out = Path(options.out)
    test = [*train.Batches(held_out, batches.size, rest=True)]
    state = train.fit(
        state, step, batches, folder=out, steps=options.steps, every=options.every, keep=2,
        evaluate=partial(train.evaluate, batches=test, metric_fn=loss),
    )  # fmt: skip
    train.save_adapter(state.model, out)
    tokenizer.save_pretrained(out)
    return _shown.as_json(about | results(out)) if options.json else report(out)


def loss(model: Model, batch: dict[str, PyTree]) -> jax.Array:
    """Returns the model's own loss; attention stays within each packed text."""
    inputs = {k: x for k, x in batch.items() if k != "segment_ids"}
    mask = train.segment_mask(batch["segment_ids"])
    return train.model_loss(model, {**inputs, "attention_mask": mask})


def loss_and_tokens(
    model: Model, batch: dict[str, PyTree]
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss, and the number of tokens."""
    return loss(model, batch), {"tokens": (batch["segment_ids"] > 0).sum()}


def positions(model: Model, length: int) -> int:
    """Returns the number of positions that the model has, ``length`` if it has no limit."""
    config = model.source.module.config.get_text_config(decoder=True)
    maximum = getattr(config, "max_position_embeddings", None)
    return maximum if isinstance(maximum, int) and maximum > 0 else length


def split_rows(rows: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Splits rows into (held out, training); a single row is in both."""
    count = len(rows["input_ids"])
    mask = np.arange(count) % HELD_OUT == 0
    if count == 1:
        return rows, rows
    return {k: x[mask] for k, x in rows.items()}, {k: x[~mask] for k, x in rows.items()}


def linears(model: Model) -> str:
    """Returns a pattern for the weights of all linear layers but the output's, as in PEFT."""
    module = model.source.module
    head = module.get_output_embeddings()
    kinds = [
        name
        for name, child in module.named_modules()
        if type(child).__name__ in ("Linear", "Conv1D") and child is not head
    ]
    names = [f"{name}.weight" for name in kinds if f"{name}.weight" in model.params]
    if not names:
        raise Unsupported(
            f"{type(module).__name__} has no linear layers",
            why="adapters are put on the weights of linear layers",
            do="name others: --targets 'a regular expression of parameter names'",
        )
    return "^(" + "|".join(name.replace(".", r"\.") for name in names) + ")$"


def plan(
    model: Any, base_size: int, training: Any, held_out: Any, batches: Any, options: Finetune
) -> dict[str, Any]:
    """Prints what will be done, and returns its numbers by name."""
    trained = sum(x.size for x in model.params.values())
    held_as = f" held as {options.quantize}" if options.quantize else ""
    ids = training["input_ids"]
    tokens = int((training["segment_ids"] > 0).sum())
    epochs = options.steps / len(batches)
    console.print(
        f"{model.source.name}: {trained:,} of {trained + base_size:,} params are trained "
        f"(rank {options.rank}{', DoRA' if options.dora else ''}, "
        f"{len(model.source.adapters)} matrices{held_as})\n"
        f"{options.data}: {tokens:,} tokens in {len(ids)} rows of {ids.shape[1]}, "
        f"{len(held_out['input_ids'])} rows held out\n"
        f"{options.steps} steps of {batches.size} rows: {epochs:.1f} epochs"
    )
    return {
        "model": model.source.name, "parameters": trained + base_size, "trained": trained,
        "tokens": tokens, "rows": len(ids), "held_out_rows": len(held_out["input_ids"]),
        "steps": options.steps, "batch": batches.size, "epochs": epochs,
    }  # fmt: skip


def memory(step: Any, state: Any, batch: Any) -> dict[str, int]:
    """Compiles the step, prints the memory that it needs, and returns its bytes."""
    with _shown.progress("compiling"):
        analysis = step.program(state).lower(state, batch).compile().memory_analysis()
    state_size = sum(x.nbytes for x in jax.tree.leaves(state) if hasattr(x, "nbytes"))
    console.print(
        f"memory: {size(state_size)} of weights and optimizer, "
        f"{size(analysis.temp_size_in_bytes)} while a step runs; one program for all steps"
    )
    return {"state": state_size, "step": analysis.temp_size_in_bytes}


def results(out: Path) -> dict[str, Any]:
    """Returns the last metrics of the run by name, and draws its curve where that is possible."""
    last: dict[str, float] = {}
    for name in ("loss", "eval_loss"):
        steps, values = _curve.losses(out, name)
        last |= {"steps": steps[-1], name: values[-1]} if steps else {}
    rates = _curve.losses(out, "tokens_per_second")[1]
    _curve.picture(out)
    return {"folder": str(out), **last, "tokens_per_second": float(np.median(rates))}


def report(out: Path) -> None:
    """Prints the results of the run."""
    print(_curve.drawn(_curve.losses(out)[1], blocks=_curve.blocks(sys.stdout)))
    last = results(out)
    held_out = f", held out {last['eval_loss']:.3f}" if "eval_loss" in last else ""
    print(f"step {last['steps']}: loss {last['loss']:.3f}{held_out}")
    rate = f"{last['tokens_per_second']:,.0f} tokens per second in training"
    print(f"{rate}, the median of all steps")
    drawing = ", loss.png" if (out / _curve.PICTURE).exists() else ""
    print(f"{out}: adapter, metrics.jsonl, checkpoints{drawing}")
