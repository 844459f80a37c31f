"""A diffusion pipeline is one program, and trained as one: its sampler's four steps learn to make
disks of noise, without a loss of denoising: python examples/diffusion_pipeline.py picture.svg
"""

import sys

import diffusers
import jax
import numpy as np
import optax
import torch
from matplotlib import pyplot as plt

import anyjax

torch.manual_seed(0)
unet = diffusers.UNet2DModel(  # of a config, with random weights
    8, 1, 1, block_out_channels=(16,), norm_num_groups=4, layers_per_block=1, add_attention=False,
    down_block_types=["DownBlock2D"], up_block_types=["UpBlock2D"],
)  # fmt: skip
pipe = anyjax.from_diffusers(diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler()))
disk = (np.hypot(*(np.mgrid[:8, :8] - 3.5)) < 3).astype(np.float32)
tx, key = optax.adam(1e-2), jax.random.key(0)


def loss(params, key):
    pictures = pipe.apply(params, batch_size=6, steps=4, rng=key).images[:, 0]
    return ((pictures - disk) ** 2).mean(), pictures


gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))
params, state, rows, values = pipe.params, tx.init(pipe.params), [], []
for i in range(25):
    (value, pictures), grads = gradient(params, jax.random.fold_in(key, i))
    updates, state = tx.update(grads, state)
    params = optax.apply_updates(params, updates)
    rows, values = [*rows, np.hstack(pictures)], [*values, value]
print(f"error {values[0]:.3f} -> {values[-1]:.3f}")
file = sys.argv[1] if sys.argv[1:] else "diffusion_pipeline.png"
plt.imsave(file, np.vstack(rows[::8]).repeat(8, 0).repeat(8, 1), cmap="gray")
