"""A decoding step as servers of torch models on TPUs write it, as the chips' compiler sees it.

python benchmarks/serving.py                    # four layers of Llama 3 8B and of a Qwen3-MoE
python benchmarks/serving.py --cases llama --ways anyjax,torchax --kernels 12

``functional_call`` inside of a jit of one's own; caches that are donated and written through views,
each row at its own place; weights divided by columns and rows over eight chips. Nothing is run: the
module has no values, weights are shapes in bfloat16. Printed is what the kernels of one chip read
and write, beside the weights and caches of that chip, which a token has to read. The same lines run
on torchax, where that can be imported. Weights and caches of a layer are larger here than a chip's
VMEM: the compiler moves smaller ones there and back, more often than they are needed.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import subprocess
import sys
import time

BATCH, LENGTH = 64, 4096
SIZES = {
    "vocab_size": 128256, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "num_hidden_layers": 4, "head_dim": 128,
    "max_position_embeddings": LENGTH,
}  # fmt: skip
EXPERTS = {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128}
# class of the config, its sizes
CASES = {
    "llama": ("LlamaConfig", SIZES),
    "qwen3_moe": ("Qwen3MoeConfig", {**SIZES, **EXPERTS, "num_experts_per_tok": 8}),
}
# Which dimension of a weight is divided, by the last names of its path; others are whole.
DIVIDED = dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), 0)
DIVIDED |= {"lm_head": 0, "embed_tokens": 0, "o_proj": 1, "down_proj": 1}
DIVIDED |= {"gate_up_proj of experts": 1, "down_proj of experts": 2}


def module_of(case):
    """A module without values."""
    import torch
    import transformers

    name, sizes = CASES[case]
    config = getattr(transformers, name)(**sizes)
    options = {"attn_implementation": "sdpa", "dtype": torch.bfloat16}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **options)
    if case == "qwen3_moe":
        config._experts_implementation = "grouped_mm"
    return model.eval()


def runner_of(model):
    """What a server calls: a module around the model, and around caches that it owns."""
    import torch
    import transformers

    class Caches(transformers.Cache):
        def __init__(self, arrays, positions):
            self.arrays, self.positions, self.layers = arrays, positions, []

        def update(self, keys, values, layer, *args, **kwargs):
            rows = torch.arange(len(keys), device=keys.device)
            of_keys, of_values = self.arrays[layer].unbind(0)  # views
            of_keys[rows, :, self.positions] = keys[:, :, 0]
            of_values[rows, :, self.positions] = values[:, :, 0]
            return of_keys, of_values

        def get_seq_length(self, layer=0):
            return LENGTH

    class Runner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, positions, caches):
            columns = torch.arange(LENGTH, device=positions.device)
            mask = (columns <= positions[:, None])[:, None, None]
            hidden = self.model.model(
                input_ids=input_ids, attention_mask=mask, position_ids=positions[:, None],
                past_key_values=Caches(caches, positions), use_cache=True,
            ).last_hidden_state  # fmt: skip
            return self.model.lm_head(hidden)

    return Runner()


def spec_of(name):
    """How a weight is divided."""
    from jax import P

    *_, owner, last = name.split(".")
    dim = DIVIDED.get(f"{last} of experts" if owner == "experts" else owner)
    return P() if dim is None else P(*(None,) * dim, "model")


def traced(case, way, chips):
    """(the traced step, bytes that a token needs on one chip, a chip)."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch
    from jax import P

    from anyjax.chips.devices import devices_of

    if way == "anyjax":
        importlib.import_module("anyjax.torchax").install()
    torchax, interop = (importlib.import_module(x) for x in ("torchax", "torchax.interop"))
    runner = runner_of(module_of(case))
    config, devices = runner.model.config, devices_of(chips)
    mesh = jax.sharding.Mesh(np.array(devices), ("model",))
    placed = lambda spec: jax.NamedSharding(mesh, spec)
    shaped = lambda shape, dtype, spec: jax.ShapeDtypeStruct(shape, dtype, sharding=placed(spec))
    size = lambda x: x.dtype.itemsize * math.prod(x.sharding.shard_shape(x.shape))
    of = {torch.float32: jnp.float32, torch.bfloat16: jnp.bfloat16}
    tensors = dict([*runner.named_parameters(), *runner.named_buffers()])
    weights = {k: shaped(tuple(x.shape), of[x.dtype], spec_of(k)) for k, x in tensors.items()}
    by_heads = P(None, None, "model")
    shape = 2, BATCH, config.num_key_value_heads, LENGTH, config.head_dim
    caches = [shaped(shape, jnp.bfloat16, by_heads) for _ in range(config.num_hidden_layers)]
    needed = sum(map(size, [*weights.values(), *caches]))
    needed -= size(weights["model.model.embed_tokens.weight"])  # of which rows are read
    ids, positions = (shaped(x, jnp.int32, P()) for x in ((BATCH, 1), (BATCH,)))
    results = [placed(by_heads)] * len(caches), placed(by_heads)

    @functools.partial(jax.jit, donate_argnames=("caches",), out_shardings=results)
    def step(weights, caches, ids, positions):
        view = interop.torch_view
        with torchax.default_env(), torch.no_grad():
            tensors = view(caches)
            args = view(ids), view(positions), tensors
            logits = torch.func.functional_call(runner, view(weights), args, tie_weights=False)
            return interop.jax_view(tensors), interop.jax_view(logits)

    return step.trace(weights, caches, ids, positions), needed, devices[0]


def figures(case, way, chips, kernels):
    """Compiles one case, in this process."""
    from anyjax.chips.devices import compile_lowered, platform_of_device
    from anyjax.parallel.estimation.compiled import analysis

    start = time.perf_counter()
    step, needed, device = traced(case, way, chips)
    lowered = step.lower(lowering_platforms=(platform_of_device(device),))
    compiled = analysis(compile_lowered(lowered, device))
    moved = sum(x.bytes for x in compiled.collectives.values())
    heaviest = sorted(compiled.kernels, key=lambda k: -k.bytes)[: int(kernels)]
    return {
        "gb": round(compiled.traffic / 1e9, 3),
        "needed_gb": round(needed / 1e9, 3),
        "ratio": round(compiled.traffic / needed, 3),
        "mcycles": round(compiled.cycles / 1e6, 2),
        "temp_mb": round(compiled.temporaries / 1e6, 1),
        "collectives_mb": round(moved / 1e6, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "kernels": [f"{k.bytes / 1e6:9.2f} MB {k.calls:3} {k.kind} {k.name}" for k in heaviest],
    }


def measured(*options):
    """The figures of a case, compiled in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, options)]
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"} | os.environ
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ways", default="anyjax", help="anyjax,torchax")
    parser.add_argument("--chips", default="v6e-8")
    parser.add_argument("--kernels", type=int, default=0, help="show the heaviest")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(figures(*options.one)))
        return
    print("| case | way | GB moved | GB needed | ratio | million cycles | MB of temporaries |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case in options.cases.split(","):
        for way in options.ways.split(","):
            x = measured(case, way, options.chips, options.kernels)
            names = "gb", "needed_gb", "ratio", "mcycles", "temp_mb"
            cells = [str(x[n]) for n in names] if "ratio" in x else [x["failed"], *[""] * 4]
            print(f"| {case} | {way} | {' | '.join(cells)} |", flush=True)
            print(*x.get("kernels", ()), sep="\n", end="\n" * bool(options.kernels))


if __name__ == "__main__":
    main()
