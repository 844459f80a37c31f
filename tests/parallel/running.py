"""Small models run for real on eight virtual CPU devices, beside what is estimated of them.

``python -m tests.parallel.running`` prints the table; with a case (``llama train fsdp 32 128``) it
prints how much the resident set of this process grew.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import cache
from pathlib import Path

import jax
import numpy as np
import torch
import transformers as tf

import anyjax
from anyjax.hf.estimate_call import OPTIMIZERS, next_token_loss, traced_call
from anyjax.parallel import shard
from anyjax.parallel._estimate import abstract_mesh_of, estimate_traced, mesh_for
from anyjax.parallel.estimation.compiled import Compiled, analysis
from anyjax.parallel.estimation.report import Estimate
from anyjax.train import TrainState, make_step

TOKENS = dict(vocab_size=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WIDE = TOKENS | dict(
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=8,
    intermediate_size=352,
    max_position_embeddings=256,
)
CONFIGS = {
    "llama": lambda: ("LlamaForCausalLM", tf.LlamaConfig(**WIDE)),
    "gpt2": lambda: (
        "GPT2LMHeadModel",
        tf.GPT2Config(**TOKENS, n_embd=128, n_layer=2, n_head=8, n_positions=256),
    ),
    "moe": lambda: ("MixtralForCausalLM", tf.MixtralConfig(**WIDE, num_local_experts=8)),
}
CALLS = ("forward", "train", "decode")
PLANS = ("tp", "fsdp", "tp+fsdp")
BATCH, LENGTH = 16, 64


@cache
def folder(name: str) -> str:
    """A folder with nothing but a config.json."""
    cls, config = CONFIGS[name]()
    config.architectures = [cls]
    path = tempfile.mkdtemp(prefix=name)
    config.save_pretrained(path)
    return path


@cache
def traced(name: str, what: str, batch: int = BATCH, length: int = LENGTH):
    """The call, traced from the config alone."""
    return traced_call(folder(name), what, batch, length)


def estimated(name: str, what: str, plan: str, **size: int) -> Estimate:
    """What the command says for eight CPU devices."""
    return estimate_traced(traced(name, what, **size), "cpu-8", plan)


def real_mesh(plan: str) -> jax.sharding.Mesh:
    """The mesh of the plan's default, of devices."""
    made = abstract_mesh_of(mesh_for(plan, 8))
    return jax.make_mesh(made.axis_sizes, made.axis_names, axis_types=made.axis_types)


def run(name: str, what: str, plan: str, batch: int = BATCH, length: int = LENGTH):
    """(The program that ran, bytes of arrays on the first device afterwards)."""
    torch.manual_seed(0)
    cls, config = CONFIGS[name]()
    model = anyjax.from_torch(getattr(tf, cls)(config).eval())
    mesh = real_mesh(plan)
    ids = np.arange(batch * length, dtype=np.int32).reshape(batch, length) % 500
    model = shard(model, mesh, plan, input_ids=ids)
    before = {id(x) for x in jax.live_arrays()} - {id(x) for x in jax.tree.leaves(model)}
    ids = anyjax.parallel.batches.place(ids, mesh)
    program, given, kept = CASES[what](model, ids)
    out = jax.block_until_ready(program(*given))
    held = kept, out
    arrays = [x for x in jax.live_arrays() if id(x) not in before and not x.is_deleted()]
    first = jax.devices()[0]
    size = sum(s.data.nbytes for x in arrays for s in x.addressable_shards if s.device == first)
    del held
    return program, size


def forward(model, ids):
    """The forward pass."""
    apply = lambda params, state, ids: (
        model.apply(params, input_ids=ids, use_cache=False, state=state).logits
    )
    given = model.params, model.state, ids
    return jax.jit(apply).lower(*given).compile(), given, model


def train(model, ids):
    """A step as ``anyjax.train`` runs it."""
    tx = OPTIMIZERS["adamw"]()
    step = make_step(next_token_loss, tx)
    state = step.prepared(TrainState.create(model.train(), tx))
    given = state, {"input_ids": ids}
    return step.program(state).lower(*given).compile(), given, None


def decode(model, ids):
    """One token more, the cache in its place."""
    start = lambda params, ids: model.cache(LENGTH).prefill(params, ids)
    logits, cache = jax.jit(start)(model.params, ids[:, :-1])
    token = logits.argmax(-1).astype(np.int32)
    step = lambda params, cache, token: cache.step(params, token)
    given = model.params, cache, token
    return jax.jit(step, donate_argnums=1).lower(*given).compile(), given, model


CASES = {"forward": forward, "train": train, "decode": decode}


def measured(name: str, what: str, plan: str, **size: int) -> tuple[Compiled, int]:
    """(What XLA says of the program that ran, bytes: arrays afterwards and its temporaries)."""
    program, arrays = run(name, what, plan, **size)
    found = analysis(program)
    return found, arrays + found.temporaries


def resident() -> tuple[int, int]:
    """(Bytes of this process in memory now, and the most since it was last reset)."""
    text = Path("/proc/self/status").read_text()
    now, most = (int(re.findall(rf"{k}:\s+(\d+)", text)[0]) * 1024 for k in ("VmRSS", "VmHWM"))
    return now, most


def grown(name: str, what: str, plan: str, batch: int, length: int) -> tuple[int, Compiled]:
    """(How much the resident set grows while the call runs, what XLA says of it)."""
    start = 0
    original = CASES[what]

    def prepared(model, ids):
        nonlocal start
        found = original(model, ids)
        Path("/proc/self/clear_refs").write_text("5")
        start = resident()[0]
        return found

    CASES[what] = prepared
    program, _ = run(name, what, plan, batch, length)
    return resident()[1] - start, analysis(program)


def main() -> None:
    """Prints the table."""
    heads = "model", "call", "plan", "predicted MB", "program MB", "error", "arrays MB", "error"
    print(f"| {' | '.join(heads)} | traced |\n| --- | --- | --- |{' ---: |' * 6}")
    for name in CONFIGS:
        for what in CALLS:
            for plan in PLANS:
                told = estimated(name, what, plan)
                program, arrays = measured(name, what, plan)
                off = [told.peak / x - 1 for x in (program.peak, arrays)]
                print(
                    f"| {name} | {what} | {plan} | {told.peak / 1e6:.2f} "
                    f"| {program.peak / 1e6:.2f} | {off[0]:+.1%} "
                    f"| {arrays / 1e6:.2f} | {off[1]:+.1%} | {told.traced_peak / 1e6:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    if len(sys.argv) > 4:
        rows, positions = map(int, sys.argv[4:6])
        more, found = grown(sys.argv[1], sys.argv[2], sys.argv[3], rows, positions)
        told = 8 * (found.temporaries + found.outputs - found.aliased)
        print(f"resident set +{more / 1e6:.0f} MB, XLA on eight devices {told / 1e6:.0f} MB")
    else:
        main()
