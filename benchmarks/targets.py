"""What the compilers of TPUs and GPUs say of programs, on a machine that has neither.

python benchmarks/targets.py                       # every case for v6e and h100
python benchmarks/targets.py --cases prefill,train --targets v5e,h100 --json targets.json

For TPUs it needs `pip install "jax[tpu]"`, for GPUs jax-cuda12-plugin, jax-cuda12-pjrt,
nvidia-cuda-nvcc-cu12, nvidia-cudnn-cu12 and nvidia-cublas-cu12, with the version of jax that is
installed. Nothing is run. No figure varies from run to run: million cycles of the fusions (TPUs; a
kernel's own are not in them), gigabytes that kernels read and write, megabytes of temporaries. "By
hand" is JAX with the target's attention kernel. Weights are in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
H100 = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
} platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3" """
SLICES = {"v5e": "v5e:2x2", "v6e": "v6e:2x2"}  # the smallest that there are
LLAMA = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8}
LLAMA |= {"num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000}
LLAMA |= {"max_position_embeddings": 16384}
MIXTURE = {**LLAMA, "num_hidden_layers": 2, "num_local_experts": 8}
# class, its config, inputs
CASES = {
    "prefill": ("LlamaForCausalLM", LLAMA, {"input_ids": (4, 2048)}),
    "padded prefill": (
        "LlamaForCausalLM", LLAMA, {"input_ids": (4, 2048), "attention_mask": (4, 2048)},
    ),
    "long prefill": ("LlamaForCausalLM", LLAMA, {"input_ids": (2, 8192)}),
    "train": ("LlamaForCausalLM", LLAMA, {"input_ids": (4, 2048)}),
    "gpt2": ("GPT2LMHeadModel", {}, {"input_ids": (8, 1024)}),
    "mixtral": ("MixtralForCausalLM", MIXTURE, {"input_ids": (4, 1024)}),
    "resnet50": (
        "ResNetForImageClassification", {"num_labels": 1000}, {"pixel_values": (32, 3, 224, 224)},
    ),
    "vit": ("ViTForImageClassification", {"num_labels": 1000}, {"pixel_values": (32, 3, 224, 224)}),
    "t5": (
        "T5ForConditionalGeneration", {"decoder_start_token_id": 0},
        {"input_ids": (8, 512), "decoder_input_ids": (8, 512)},
    ),
    "whisper": (
        "WhisperForConditionalGeneration", {},
        {"input_features": (8, 80, 3000), "decoder_input_ids": (8, 128)},
    ),
}  # fmt: skip
BY_HAND = {"prefill", "long prefill", "train"}
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8}
KERNELS = {"fusion", "custom-call", "dot", "convolution", "copy", "transpose", "reduce", "sort"}
KERNELS |= {"scatter", "gather", "dynamic-update-slice"}


def device(target):
    from jax.experimental import topologies

    if target == "h100":
        found = topologies.get_topology_desc("", "cuda", target_config=H100, topology="1x1x1")
    else:
        import libtpu

        os.environ.setdefault("TPU_LIBRARY_PATH", libtpu.get_library_path())
        found = topologies.get_topology_desc(SLICES[target], "tpu")
    return found.devices[0]


def traffic(text):
    """Bytes that the kernels of the program's entry read and write, each operand counted whole."""
    sizes, total = {}, 0
    shape = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")
    size = lambda part: sum(
        BYTES.get(kind, 0) * math.prod(int(n) for n in dims.split(",") if n)
        for kind, dims in shape.findall(part)
    )
    for line in text[text.index("ENTRY") :].splitlines():
        match = re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z\-]*)\((.*)$", line)
        if match is None:
            continue
        name, result, op, rest = match.groups()
        sizes[name] = size(result)
        if op in KERNELS:
            operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
            total += sizes[name] + sum(sizes.get(x, 0) for x in operands)
    return total


def program(case, target, way):
    """The traced program of a case: its arrays are shapes on the target."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch
    import transformers

    import anyjax

    kind, config, inputs = CASES[case]
    torch.manual_seed(0)
    cls = getattr(transformers, kind)
    module = cls(cls.config_class(**config)).eval()
    sharding = jax.NamedSharding(jax.sharding.Mesh(np.array([device(target)]), ("x",)), jax.P())
    shaped = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    low = lambda x: jnp.bfloat16 if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    of = lambda tree: jax.tree.map(lambda x: shaped(x.shape, low(x)), tree)
    batch = {k: shaped(v, jnp.bfloat16 if len(v) > 2 else jnp.int32) for k, v in inputs.items()}
    model = anyjax.from_torch(module)
    options = {"use_cache": False} if "input_ids" in inputs else {}
    run = lambda p, s, x: model.apply(p, state=s, **x, **options).logits
    if way == "by hand":
        from accelerator import by_hand

        kernel = "cudnn" if target == "h100" else "splash"
        run = lambda p, s, x: by_hand(module.config, p, x["input_ids"], kernel)
    params, state = of(model.params), of(model.state)
    if case != "train":
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
            logits = run(params, state, batch)[:, :-1].astype(jnp.float32)
            labels = batch["input_ids"][:, 1:]
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return step, tx.init


def figures(case, target, way):
    """Compiles one case, in this process."""
    gpu = target == "h100"
    lowered = program(case, target, way).lower(lowering_platforms=("cuda" if gpu else "tpu",))
    start = time.perf_counter()
    compiled = lowered.compile({"xla_gpu_autotune_level": 0} if gpu else None)
    seconds, text = time.perf_counter() - start, compiled.as_text()
    cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text)))
    moved = traffic(text) if gpu else compiled.cost_analysis()["bytes accessed"]
    return {
        "case": case,
        "target": target,
        "way": way,
        "mcycles": None if gpu else round(cycles / 1e6, 2),
        "gb": round(moved / 1e9, 2),
        "temp_mb": round(compiled.memory_analysis().temp_size_in_bytes / 1e6, 1),
        "compile_s": round(seconds, 1),
    }


def measured(case, target, way):
    """The figures of a case, compiled in a process of its own."""
    command = [sys.executable, __file__, "--one", case, target, way]
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"} | TPU | os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"case": case, "target": target, "way": way, "failed": reason[:200]}
    return json.loads(lines[-1])


def row(entry, hand):
    """A line of the table: figures, and what they are divided by those of the program by hand."""
    cells = [entry["case"], entry["target"]]
    if "failed" in entry:
        return f"| {' | '.join(cells)} | {entry['failed']} | | | |"
    for key in ("mcycles", "gb", "temp_mb", "compile_s"):
        ratio = ""
        if hand and key != "compile_s" and hand.get(key) and entry[key]:
            ratio = f" ({entry[key] / hand[key]:.2f})"
        cells.append("" if entry[key] is None else f"{entry[key]}{ratio}")
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES), help="with commas")
    parser.add_argument("--targets", default="v6e,h100", help="of v5e, v6e, h100")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(figures(*options.one)))
        return
    print("| case | target | million cycles | GB moved | MB of temporaries | seconds to compile |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    entries = []
    for case in options.cases.split(","):
        for target in options.targets.split(","):
            entry = measured(case, target, "anyjax")
            hand = measured(case, target, "by hand") if case in BY_HAND else None
            entries += [entry, *([hand] if hand else [])]
            print(row(entry, hand), flush=True)
    if options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
