"""Trains a language model, its params, gradients and optimizer divided over all devices (FSDP).

It runs unchanged in one process, in several on this machine, in a Slurm job and on a TPU pod:

    python examples/train_fsdp.py MODEL text.txt out
    python -m anyjax.parallel.launch --processes 4 examples/train_fsdp.py MODEL text.txt out
    srun python examples/train_fsdp.py MODEL text.txt out

The folder `out` is one that all processes see. Stopped, or with fewer machines than before, the
same command goes on from the last checkpoint.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import optax
from transformers import AutoTokenizer

import anyjax

STEPS, ROWS, LENGTH = 60, 16, 64  # steps, rows of a batch of all processes, tokens of a row


def tokens(model: str, text: str) -> np.ndarray:
    """Rows of tokens. A corpus that is large is tokenized once and read by
    np.load(file, mmap_mode="r"): a process then reads its own rows alone.
    """
    ids = AutoTokenizer.from_pretrained(model)(Path(text).read_text()).input_ids
    return np.array(ids[: len(ids) // LENGTH * LENGTH], np.int32).reshape(-1, LENGTH)


def main(source: str, text: str, out: str) -> None:
    anyjax.parallel.initialize()  # before anything else asks JAX for its devices
    mesh = jax.make_mesh((jax.device_count(),), ("fsdp",))
    model = anyjax.from_pretrained(source, mesh=mesh, plan="fsdp").train()
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0, 1e-3, 6, STEPS))
    step = anyjax.train.make_step(anyjax.train.model_loss, tx, clip=1.0)
    state = anyjax.train.TrainState.create(model, tx)

    rows = tokens(source, text)
    batches = anyjax.train.Batches({"input_ids": rows, "labels": rows}, ROWS, key=0)
    state = anyjax.train.fit(state, step, batches, folder=out, steps=STEPS, every=20)

    anyjax.save_pretrained(state.model, Path(out, "model"))  # by all; the first process writes
    if jax.process_index() == 0:
        print(f"{jax.process_count()} processes, {jax.device_count()} devices: {state.step} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
