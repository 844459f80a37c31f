"""What the compilers of TPUs and GPUs say of programs, on a machine that has neither.

python benchmarks/targets.py                       # every case for v6e and h100
python benchmarks/targets.py --cases "prefill;train" --chips v5e-1,h100-1 --json targets.json
python benchmarks/targets.py --read targets.json   # print the table of such a file again

It needs `anyjax[tpu]` and `anyjax[cuda]`; torchax and diffusers for what they have figures of.
Nothing is run, and no figure varies from run to run: million cycles that a TPU's compiler expects
(without those of kernels that it did not make, such as an attention's), gigabytes that kernels read
and write, megabytes of temporaries; weights are in bfloat16. Behind each figure stands its ratio to
torchax's program and to JAX by hand with the chip's attention kernel, "-" where there is none;
below 1 is better. "needed" are weights and caches that a token has to read.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LLAMA = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8}
LLAMA |= {"num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000}
LLAMA |= {"max_position_embeddings": 16384}
MIXTURE = {**LLAMA, "num_hidden_layers": 2, "num_local_experts": 8}
TOKENS, PICTURES = {"input_ids": (4, 2048)}, {"pixel_values": (32, 3, 224, 224)}
LATENTS = {"sample": (2, 4, 64, 64), "timestep": (2,), "encoder_hidden_states": (2, 77, 768)}
# class, its config, inputs
CASES = {
    "prefill": ("LlamaForCausalLM", LLAMA, TOKENS),
    "padded prefill": ("LlamaForCausalLM", LLAMA, {**TOKENS, "attention_mask": (4, 2048)}),
    "long prefill": ("LlamaForCausalLM", LLAMA, {"input_ids": (2, 8192)}),
    "train": ("LlamaForCausalLM", LLAMA, TOKENS),
    "train, labels": ("LlamaForCausalLM", LLAMA, {**TOKENS, "labels": (4, 2048)}),
    "decode": ("LlamaForCausalLM", LLAMA, {"input_ids": (8, 2048)}),
    "decode, heads alone": (
        "LlamaForCausalLM", {**LLAMA, "num_key_value_heads": 8}, {"input_ids": (8, 2048)},
    ),
    "decode, mixtral": ("MixtralForCausalLM", MIXTURE, {"input_ids": (8, 2048)}),
    "gpt2": ("GPT2LMHeadModel", {}, {"input_ids": (8, 1024)}),
    "mixtral": ("MixtralForCausalLM", MIXTURE, {"input_ids": (4, 1024)}),
    "resnet50": ("ResNetForImageClassification", {"num_labels": 1000}, PICTURES),
    "vit": ("ViTForImageClassification", {"num_labels": 1000}, PICTURES),
    "t5": (
        "T5ForConditionalGeneration", {"decoder_start_token_id": 0},
        {"input_ids": (8, 512), "decoder_input_ids": (8, 512)},
    ),
    "whisper": (
        "WhisperForConditionalGeneration", {},
        {"input_features": (8, 80, 3000), "decoder_input_ids": (8, 128)},
    ),
    "unet": ("UNet2DConditionModel", {"cross_attention_dim": 768}, LATENTS),
}  # fmt: skip
FLOATS = {"pixel_values", "input_features", "sample", "encoder_hidden_states"}
BY_HAND = {"prefill", "long prefill", "train", "gpt2"}
FIGURES = {"mcycles": "million cycles", "gb": "GB moved", "temp_mb": "MB of temporaries"}


def module_of(case):
    """The module of a case with random weights."""
    import torch

    name, config, _ = CASES[case]
    torch.manual_seed(0)
    if case == "unet":
        import diffusers

        return getattr(diffusers, name)(**config).eval()
    import transformers

    cls = getattr(transformers, name)
    return cls(cls.config_class(**config)).eval()


def function_of(way, case, module, chips):
    """(function of params, state and inputs, params, state) of a library's program."""
    options = {"use_cache": False} if "input_ids" in CASES[case][2] else {}
    result = "sample" if case == "unet" else "loss" if "labels" in CASES[case][2] else "logits"
    if way == "torchax":
        import torchax

        weights, run = torchax.extract_jax(module)
        names = {name for name, _ in module.named_parameters()}
        params = {k: x for k, x in weights.items() if k in names}
        state = {k: x for k, x in weights.items() if k not in names}
        call = lambda p, s, x: run({**p, **s}, (), {**x, **options})
        return (lambda p, s, x: getattr(call(p, s, x), result)), params, state
    import anyjax

    model = anyjax.from_torch(module)
    if way == "anyjax":
        call = lambda p, s, x: model.apply(p, state=s, **x, **options)
        return (lambda p, s, x: getattr(call(p, s, x), result)), model.params, model.state
    import accelerator
    from adapters import native_

    kernel = "cudnn" if chips.startswith("h") else "splash"
    attend = lambda q, k, v: accelerator.attend(q, k, v, kernel)
    hand = lambda p, x: accelerator.by_hand(module.config, p, x, kernel)
    if case == "gpt2":
        hand = lambda p, x: native_.gpt2(module.config, p, x, attend)
    return (lambda p, s, x: hand(p, x["input_ids"])), model.params, {}


def traced(way, case, chips):
    """The traced program of a case, its arrays shapes on a device that is not here."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from anyjax.chips.devices import devices_of

    run, params, state = function_of(way, case, module_of(case), chips)
    mesh = jax.sharding.Mesh(np.array(devices_of(chips)[:1]), ("x",))
    sharding = jax.NamedSharding(mesh, jax.P())
    shaped = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    low = lambda x: jnp.bfloat16 if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    of = lambda tree: jax.tree.map(lambda x: shaped(x.shape, low(x)), tree)
    inputs = CASES[case][2]
    batch = {k: shaped(v, jnp.bfloat16 if k in FLOATS else jnp.int32) for k, v in inputs.items()}
    params, state = of(params), of(state)
    if not case.startswith("train"):
        return jax.jit(run).trace(params, state, batch)
    step, init = training(run)
    opt_state = jax.tree.map(lambda x: shaped(x.shape, x.dtype), jax.eval_shape(init, params))
    return jax.jit(step, donate_argnums=(0, 1)).trace(params, opt_state, state, batch)


def training(run):
    """A step of AdamW on the next tokens, and the function of its first state."""
    import jax
    import jax.numpy as jnp
    import optax

    tx = optax.adamw(1e-4)

    def step(params, opt_state, state, batch):
        def loss(params):
            out = run(params, state, batch)
            if out.ndim == 0:
                return out
            logits, labels = out[:, :-1].astype(jnp.float32), batch["input_ids"][:, 1:]
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return step, tx.init


def decoding(case, chips):
    """One token more for each row by ``anyjax.generate``'s program: (analysis, bytes needed)."""
    import transformers

    from anyjax.hf.estimate_call import traced_call
    from anyjax.parallel._compile_for import compile_traced

    name, config, inputs = CASES[case]
    kind = getattr(transformers, name).config_class(**config, architectures=[name])
    kind.dtype = "bfloat16"
    with tempfile.TemporaryDirectory() as folder:
        kind.save_pretrained(folder)
        call = traced_call(folder, "decode", *inputs["input_ids"])
    compiled = compile_traced(call, chips, "tp").compiled
    table = 2 * kind.vocab_size * kind.hidden_size  # of embeddings, of which it reads rows
    return compiled, compiled.arguments - table


def figures(case, chips, way):
    """Compiles one case, in this process."""
    import jax  # noqa: F401

    from anyjax.chips.devices import compile_lowered, devices_of, platform_of_device
    from anyjax.parallel.estimation.compiled import analysis

    start, needed = time.perf_counter(), None
    if case.startswith("decode"):
        compiled, needed = decoding(case, chips)
    else:
        device = devices_of(chips)[0]
        platforms = (platform_of_device(device),)
        lowered = traced(way, case, chips).lower(lowering_platforms=platforms)
        compiled = analysis(compile_lowered(lowered, device))
    return {
        "mcycles": round(compiled.cycles / 1e6, 2),
        "gb": round(compiled.traffic / 1e9, 2),
        "temp_mb": round(compiled.temporaries / 1e6, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "needed_gb": needed and round(needed / 1e9, 2),
    }


def measured(case, chips, way):
    """The figures of a case, compiled in a process of its own."""
    command = [sys.executable, __file__, "--one", case, chips, way]
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"} | os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    entry = {"case": case, "chips": chips, "way": way}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return entry | {"failed": reason[:200]}
    return entry | json.loads(lines[-1])


def row(ours, others):
    """A line of the table: figures with their ratios to those of ``others``."""
    cells = [ours["case"], ours["chips"]]
    if "failed" in ours:
        return f"| {' | '.join([*cells, ours['failed']])} | | | |"
    ratio = lambda x, key: f"{ours[key] / x[key]:.2f}" if x and x.get(key) else "-"
    for key in FIGURES:
        ratios = ", ".join(ratio(x, key) for x in others)
        shown = f" ({ratios})" if any(others) else ""
        cells.append(f"{ours[key]}{shown}" if ours[key] else "0" if key == "temp_mb" else "")
    needed = ours.get("needed_gb")
    cells.append(f"{needed} ({ours['gb'] / needed:.2f})" if needed else "")
    return f"| {' | '.join(cells)} |"


def table(entries):
    """Yields the lines of a table as entries come: those of a case follow each other."""
    yield f"| case | chip | {' | '.join(FIGURES.values())} | GB needed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    group = {}
    for entry in itertools.chain(entries, [None]):
        if group and (entry is None or entry["way"] == "anyjax"):
            yield row(group.pop("anyjax"), [group.get(way) for way in ("torchax", "by hand")])
            group = {}
        if entry:
            group[entry["way"]] = entry


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=";".join(CASES), help="with semicolons")
    parser.add_argument("--chips", default="v6e-1,h100-1", help="of v5e-1, v6e-1, h100-1 ...")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--read", help="print the table of such a file")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(figures(*options.one)))
        return
    entries = compiled(options)
    if options.read:
        entries = json.loads(Path(options.read).read_text())
    for line in table(entries):
        print(line, flush=True)


def compiled(options):
    """Yields the figures of the cases that were asked for."""
    entries = []
    for case in options.cases.split(";"):
        for chips in options.chips.split(","):
            ways = ["anyjax"] if case.startswith("decode") else ["anyjax", "torchax"]
            for way in [*ways, *(["by hand"] if case in BY_HAND else [])]:
                entries.append(measured(case, chips, way))
                if options.json:
                    Path(options.json).write_text(json.dumps(entries, indent=1) + "\n")
                yield entries[-1]


if __name__ == "__main__":
    main()
