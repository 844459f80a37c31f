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

import anyjax
from anyjax import multiprocess
from anyjax.errors import BadCheckpoint, NotWritten, WrongArguments, WrongBatch
from anyjax.hf.loading import load
from anyjax.hf.loading.module.deferred import Reader
from anyjax.parallel import shard
from anyjax.train import Batches, TrainState, evaluate, fit, make_step, model_loss, restore

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
    model = anyjax.from_pretrained(folder, mesh=mesh(), plan="fsdp")
    return TrainState.create(model, tx), make_step(model_loss, tx)


class Slow(Batches):
    """Takes its time, so that a run can be killed in the middle."""

    def rows_at(self, chosen):
        time.sleep(0.03)
        return super().rows_at(chosen)


def train(begun, run: Path | None, epochs: int = 2, every: int = 4, slow: bool = False):
    """Losses, by each process's own log; there is one in the first alone."""
    seen: list[float] = []
    batches = (Slow if slow else Batches)(DATA, SIZE, key=3)
    note = lambda step, metrics: seen.append(metrics["loss"])
    fit(*begun, batches, folder=run, epochs=epochs, every=every, log=[note])
    return seen


def curve(run: Path) -> list[float]:
    """The losses in a folder."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def loaded(folder: Path, plan: str) -> dict[str, int]:
    """What this process reads for a plan, and what it should."""
    read: list[int] = []
    load.Reader = lambda: Reader(read.append)
    model = anyjax.from_pretrained(folder, mesh=mesh("model"), plan=plan)
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
    told = {
        "mean": evaluate(state, data, lambda model, batch: model(**batch).loss)["loss"],
        "errors": errors(run, state, step),
        "warned": warned(),
        "loads": {plan: loaded(folder, plan) for plan in ("fsdp", "tp")},
        "losses": train((state, step), run),
    }
    again = restore(run, begin(folder)[0])
    anyjax.save_pretrained(again.model, run / "checkpoint")
    net = linear()
    net.save(run / "saved", ONES)
    told["weights"] = {k: multiprocess.values(x) for k, x in again.params.items()}
    told["net"] = multiprocess.values(net.params["weight"])
    prompt = np.array([[1, 5, 7]])
    told["text"] = anyjax.generate(again.model.eval(), prompt, max_new_tokens=4).tolist()
    return told | {"steps": int(again.step)}


ONES = np.ones((4, 4), np.float32)


def linear(axis: str = "fsdp"):
    """A small model on the mesh, divided where its axis is one for that."""
    plain = anyjax.from_torch(torch.nn.Linear(4, 8, bias=False))
    plain = plain.with_params({"weight": jnp.arange(32.0).reshape(8, 4)})
    return shard(plain, mesh(axis), "fsdp" if axis == "fsdp" else {})


def square(model, x):
    return (model(x) ** 2).mean()


def errors(run: Path, state, step) -> dict[str, str]:
    """What is said to mistakes, all of them without leaving a process behind."""
    me, tx = jax.process_index(), optax.sgd(0.1)
    with torch.random.fork_rng():
        torch.manual_seed(me)
        other = anyjax.from_torch(torch.nn.Linear(4, 2))
    biased = torch.nn.Linear(4, 8, bias=bool(me))
    alone, net = (TrainState.create(x, tx) for x in (other, linear("model")))
    ragged = np.ones((4 + 4 * me, 4), np.float32)
    new = lambda: make_step(square, tx)
    tries = {
        "no mesh": lambda: fit(alone, new(), [ONES]),
        "restore to none": lambda: restore(run, alone),
        "other weights": lambda: shard(other, mesh(), "fsdp"),
        "batch of 9": lambda: fit(state, step, Batches(DATA, 9)),
        "batch of 2": lambda: fit(state, step, Batches(DATA, 2)),
        "other names": lambda: shard(anyjax.from_torch(biased), mesh(), "fsdp"),
        "ragged": lambda: fit(TrainState.create(linear(), tx), new(), [ragged]),
        "other rows": lambda: new()(net, ONES * me),
        "other number": lambda: new()(TrainState.create(linear(), tx), [ONES * me, me]),
        "other prompts": lambda: anyjax.generate(state.model, IDS[me : me + 1], max_new_tokens=4),
        "ragged evaluation": lambda: evaluate(linear(), [ragged], square),
        "other folder": lambda: fit(state, step, Batches(DATA, SIZE), folder=run / f"own-{me}"),
        "save in place of else": lambda: linear().save(run, ONES),
        "save a checkpoint there": lambda: anyjax.save_pretrained(state.model, run),
        "restore another": lambda: restore(run / f"own-{me}", state),
        "other rng": lambda: TrainState.create(state.model, tx, rng=me),
    }
    said = {}
    for name, call in tries.items():
        try:
            call()
        except (WrongArguments, WrongBatch, NotWritten, BadCheckpoint) as error:
            said[name] = str(error)
    return said


def warned() -> list[str]:
    """What is said where both processes give the same rows."""
    tx = optax.sgd(0.1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make_step(square, tx)(TrainState.create(linear(), tx), ONES)
    return [str(w.message) for w in found if w.category.__name__ == "SameRows"]
