"""A language model trained further on texts: adapters in PEFT's format, a curve, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from rich.console import Console

from tojax import train
from tojax.cli import _curve, _texts
from tojax.cli._generate import load_tokenizer
from tojax.errors import Unsupported
from tojax.hf.loading.checkpoint import find_checkpoint

console = Console(stderr=True)
WARMUP = 0.05  # of all steps
HELD_OUT = 20  # one row of so many is evaluated on, not trained on


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    data: str
    rank: int
    dora: bool
    targets: str | None
    quantize: str | None
    steps: int
    batch: int
    length: int
    rate: float
    every: int
    seed: int
    out: str
    dry_run: bool


def finetune(source: str, asked: Options) -> None:
    """``tojax finetune``."""
    texts = _texts.read(asked.data)
    with console.status("loading"):
        import tojax

        found = find_checkpoint(source)
        model = tojax.from_pretrained(found.folder).train()
        tokenizer = load_tokenizer(found.folder)
    rows = _texts.rows(texts, tokenizer, min(asked.length, positions(model, asked.length)))
    held, kept = split(rows)
    whole = sum(x.size for x in model.params.values())
    model = train.lora(
        model, asked.rank, asked.targets or linears(model), dora=asked.dora,
        quantize=asked.quantize, rng=asked.seed,
    )  # fmt: skip
    warmup = max(1, int(asked.steps * WARMUP))
    rate = optax.warmup_cosine_decay_schedule(0, asked.rate, warmup, max(asked.steps, warmup + 1))
    tx = optax.adamw(rate)
    step = train.make_step(counted, tx, clip=1.0)
    state = train.TrainState.create(model, tx, rng=asked.seed)
    batches = train.Batches(kept, min(asked.batch, len(kept["input_ids"])), key=asked.seed)
    plan(model, whole, kept, held, batches, asked)
    if asked.dry_run:
        memory(step, state, next(iter(batches)))
        return
    out = Path(asked.out)
    test = [*train.Batches(held, batches.size, rest=True)]
    state = train.fit(
        state, step, batches, folder=out, steps=asked.steps, every=asked.every, keep=2,
        evaluate=partial(train.evaluate, batches=test, metric_fn=loss),
    )  # fmt: skip
    train.save_adapter(state.model, out)
    tokenizer.save_pretrained(out)
    told(out)


def loss(model: Any, batch: dict[str, Any]) -> jax.Array:
    """The model's own, each packed text seeing itself alone."""
    given = {k: x for k, x in batch.items() if k != "segment_ids"}
    mask = train.segment_mask(batch["segment_ids"])
    return train.model_loss(model, {**given, "attention_mask": mask})


def counted(model: Any, batch: dict[str, Any]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss, and how many tokens there are."""
    return loss(model, batch), {"tokens": (batch["segment_ids"] > 0).sum()}


def positions(model: Any, asked: int) -> int:
    """How many the model has."""
    config = model.source.module.config.get_text_config(decoder=True)
    most = getattr(config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else asked


def split(rows: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(held out, trained on): every so many rows one; of a single row both."""
    count = len(rows["input_ids"])
    held = np.arange(count) % HELD_OUT == 0
    if count == 1:
        return rows, rows
    return {k: x[held] for k, x in rows.items()}, {k: x[~held] for k, x in rows.items()}


def linears(model: Any) -> str:
    """A pattern for the weights of all linear layers but the output's, as PEFT's all-linear."""
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


def plan(model: Any, whole: int, kept: Any, held: Any, batches: Any, asked: Options) -> None:
    """Says what will be done."""
    own = sum(x.size for x in model.params.values())
    held_as = f" held as {asked.quantize}" if asked.quantize else ""
    ids = kept["input_ids"]
    tokens = int((kept["segment_ids"] > 0).sum())
    console.print(
        f"{model.source.name}: {own:,} of {own + whole:,} params are trained "
        f"(rank {asked.rank}{', DoRA' if asked.dora else ''}, "
        f"{len(model.source.adapters)} matrices{held_as})\n"
        f"{asked.data}: {tokens:,} tokens in {len(ids)} rows of {ids.shape[1]}, "
        f"{len(held['input_ids'])} rows held out\n"
        f"{asked.steps} steps of {batches.size} rows: {asked.steps / len(batches):.1f} epochs"
    )


def memory(step: Any, state: Any, batch: Any) -> None:
    """Compiles the step and says what it needs."""
    with console.status("compiling"):
        found = step.program(state).lower(state, batch).compile().memory_analysis()
    state_size = sum(x.nbytes for x in jax.tree.leaves(state) if hasattr(x, "nbytes"))
    console.print(
        f"memory: {state_size / 2**20:.1f} MB of weights and optimizer, "
        f"{found.temp_size_in_bytes / 2**20:.1f} MB while a step runs; one program for all steps"
    )


def told(out: Path) -> None:
    """Says what came of it."""
    steps, values = _curve.losses(out)
    print(_curve.drawn(values))
    found = _curve.losses(out, "eval_loss")[1]
    print(
        f"step {steps[-1]}: loss {values[-1]:.3f}"
        + (f", held out {found[-1]:.3f}" if found else "")
    )
    rates = _curve.losses(out, "tokens_per_second")[1]
    print(
        f"{np.median(rates):,.0f} tokens per second in training, the median of {len(rates)} steps"
    )
    drawing = _curve.picture(out)
    print(f"{out}: adapter, metrics.jsonl, checkpoints" + (", loss.png" if drawing else ""))
