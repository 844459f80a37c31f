"""What the processes of a job run in test_distributed.py."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tojax
from tojax import processes
from tojax.errors import NotWritten, WrongArguments, WrongBatch
from tojax.hf import load
from tojax.hf.deferred import Reader
from tojax.parallel import shard
from tojax.train import Batches, TrainState, evaluate, fit, make_step, model_loss, restore

SIZE = 16  # rows of a batch, of all processes
IDS = np.random.default_rng(0).integers(0, 64, (96, 12)).astype(np.int32)
DATA = {"input_ids": IDS, "labels": IDS}


def checkpoint(folder: Path) -> Path:
    """A small Llama's."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    config = LlamaConfig(**sizes, num_attention_heads=4, tie_word_embeddings=False)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def mesh(name: str = "fsdp"):
    return jax.make_mesh((jax.device_count(),), (name,))


def begin(folder: Path):
    """(state, step) on a mesh of all devices."""
    tx = optax.adam(1e-2)
    model = tojax.from_pretrained(folder, mesh=mesh(), plan="fsdp")
    return TrainState.create(model, tx), make_step(model_loss, tx)


class Slow(Batches):
    """Takes its time, so that a run can be killed in the middle."""

    def rows_at(self, chosen):
        time.sleep(0.03)
        return super().rows_at(chosen)


def train(folder: Path, run: Path | None, epochs: int = 2, every: int = 4, slow: bool = False):
    """Losses, by each process's own log; there is one in the first alone."""
    state, step = begin(folder)
    seen: list[float] = []
    batches = (Slow if slow else Batches)(DATA, SIZE, key=3)
    note = lambda step, metrics: seen.append(metrics["loss"])
    state = fit(state, step, batches, folder=run, epochs=epochs, every=every, log=[note])
    return seen


def curve(run: Path) -> list[float]:
    """The losses in a folder."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def loaded(folder: Path, plan: str) -> dict[str, int]:
    """What this process reads for a plan, and what it should."""
    read: list[int] = []
    load.Reader = lambda: Reader(read.append)
    model = tojax.from_pretrained(folder, mesh=mesh("model"), plan=plan)
    parts = [{str(s.index): s.data.nbytes for s in x.addressable_shards}
             for x in model.params.values()]  # fmt: skip
    return {
        "read": sum(read),
        "own": sum(sum(part.values()) for part in parts),
        "copied": sum(x.nbytes for x in model.params.values() if x.is_fully_replicated),
        "all": sum(x.nbytes for x in model.params.values()),
    }


def everything(folder: Path, run: Path) -> dict:
    """All that two processes can do and must not do."""
    state, step = begin(folder)
    data = Batches(DATA, SIZE, key=3)
    mean = evaluate(state, data, lambda model, batch: model(**batch).loss)
    losses = train(folder, run)
    again = restore(run, state)
    tojax.save_pretrained(again.model, run / "checkpoint")
    again.model.save(run / "saved", input_ids=IDS[:2], use_cache=False)
    return {
        "loads": {plan: loaded(folder, plan) for plan in ("fsdp", "tp")},
        "losses": losses,
        "mean": mean["loss"],
        "steps": int(again.step),
        "bytes": {k: processes.whole(x) for k, x in again.params.items()},
        "errors": errors(folder, run, state, step),
        "warned": warned(state, step),
    }


def errors(folder: Path, run: Path, state, step) -> dict[str, str]:
    """What is said to mistakes, all of them without leaving a process behind."""
    me, here = jax.process_index(), mesh()
    alone = tojax.from_torch(torch.nn.Linear(4, 2))
    with torch.random.fork_rng():
        torch.manual_seed(me)
        other = tojax.from_torch(torch.nn.Linear(4, 2))
    tx = optax.sgd(0.1)
    ragged = np.ones((4 + 2 * me, 4), np.float32)
    net = shard(tojax.from_torch(torch.nn.Linear(4, 2, bias=False)).with_params(
        {"weight": jnp.ones((2, 4))}), mesh("model"), {})  # fmt: skip
    square = lambda model, x: (model(x) ** 2).mean()
    tries = {
        "no mesh": lambda: fit(TrainState.create(alone, tx), make_step(square, tx), [ragged]),
        "other weights": lambda: shard(other, here, "fsdp"),
        "batch of 9": lambda: fit(state, step, Batches(DATA, 9)),
        "batch of 2": lambda: fit(state, step, Batches(DATA, 2)),
        "ragged": lambda: fit(state, step, [{"input_ids": IDS[: len(ragged)]}]),
        "other rows": lambda: make_step(square, tx)(
            TrainState.create(net, tx), np.full((4, 4), me, np.float32)
        ),
        "other folder": lambda: fit(state, step, Batches(DATA, SIZE), folder=run / f"own-{me}"),
        "other rng": lambda: TrainState.create(state.model, tx, rng=me),
    }
    said = {}
    for name, call in tries.items():
        try:
            call()
        except (WrongArguments, WrongBatch, NotWritten) as error:
            said[name] = str(error)
    return said


def warned(state, step) -> list[str]:
    """What is said where both processes give the same rows."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make_step(model_loss, optax.adam(1e-2))(state, {k: v[:SIZE] for k, v in DATA.items()})
    return [str(w.message) for w in found if w.category.__name__ == "SameRows"]
