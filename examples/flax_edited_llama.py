"""A checkpoint's Flax source, edited by hand: each token sees the last 24 alone.

python examples/flax_edited_llama.py picture.svg
"""

import sys
import types

import jax.numpy as jnp
import optax
import torch
from flax import nnx
from matplotlib import pyplot as plt
from transformers import AutoModelForCausalLM, AutoTokenizer

import anyjax

LLAMA, ids = "examples/tiny-llama", torch.randint(0, 100, (2, 8))
module = AutoModelForCausalLM.from_pretrained(LLAMA)
source = anyjax.flax.source(module, input_ids=ids, attention_mask=torch.ones_like(ids))
edited = source.replace("mask=attention_mask,", "mask=attention_mask, local_window_size=(23, 0),")
assert edited != source
tokens = jnp.array([AutoTokenizer.from_pretrained(LLAMA)(source).input_ids[:250]])


def losses(text):
    """Of each token, by the model that the text writes, with the checkpoint's weights."""
    file = types.ModuleType("file")
    exec(text, vars(file))
    model = file.load_params(file.LlamaForCausalLM(rngs=nnx.Rngs(0)), LLAMA)
    model.eval()
    logits = nnx.jit(model)(tokens[:, :-1], jnp.ones_like(tokens[:, :-1]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])[0]


whole, window = losses(source), losses(edited)
print(f"the first 20 tokens: {abs(whole - window)[:20].max():.1e} apart")
print(f"250 tokens: {whole.mean():.3f} with all before, {window.mean():.3f} with 24")
plt.plot(window - whole, lw=0.8)
plt.savefig(sys.argv[1] if sys.argv[1:] else "flax_edited_llama.svg")
