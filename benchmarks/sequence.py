"""Memory of one device for a long text whose length is divided over 1 or 8; nothing is run.

    python benchmarks/sequence.py --lengths 4096 16384

Prints, for the forward pass and the gradient of a small Llama, the bytes that the compiled program
needs on each device beside weights and results, and what it communicates.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.calls.explicit_mesh import automatic
from anyjax.parallel.collectives import collectives

SIZES = dict(vocab_size=512, hidden_size=256, intermediate_size=1024, num_hidden_layers=4)
HEADS = dict(num_attention_heads=8, num_key_value_heads=2)


def compiled(model, devices, length, gradient):
    mesh = automatic(jax.make_mesh((devices,), ("sequence",)))
    at = lambda x, spec: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
    whole = lambda arrays: {k: at(x, P()) for k, x in arrays.items()}

    def forward(params, state, ids):
        return model.apply(params, ids, state=state, use_cache=False).logits

    mean = lambda *given: jnp.mean(forward(*given) ** 2)
    ids = at(np.ones((1, length), np.int32), P(None, "sequence"))
    run = jax.jit(jax.grad(mean) if gradient else forward)
    return run.lower(whole(model.params), whole(model.state), ids).compile()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 16384])
    given = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    config = transformers.LlamaConfig(**SIZES, **HEADS, max_position_embeddings=max(given.lengths))
    torch.manual_seed(0)
    model = anyjax.from_torch(transformers.LlamaForCausalLM(config).eval())
    for length in given.lengths:
        for gradient in (False, True):
            one, many = (compiled(model, n, length, gradient) for n in (1, 8))
            size = [x.memory_analysis().temp_size_in_bytes for x in (one, many)]
            told = {k: tuple(v) for k, v in collectives(many.as_text()).items()}
            name = "gradient" if gradient else "forward"
            print(
                f"{length:>6} {name:<8} {size[0]:>14,} {size[1]:>14,} {size[0] / size[1]:.2f}x",
                told,
                flush=True,
            )


if __name__ == "__main__":
    main()
