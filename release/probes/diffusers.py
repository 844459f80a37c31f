"""A pipeline of diffusers as one program."""

import diffusers
import jax
import numpy as np

import anyjax

blocks = {"down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"]}
unet = diffusers.UNet2DModel(8, block_out_channels=[32], layers_per_block=1, **blocks)
pipeline = diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler())
pipe = anyjax.from_diffusers(pipeline)
pictures = pipe(num_inference_steps=2, rng=jax.random.key(0), output_type="np").images
assert pictures.shape == (1, 8, 8, 3) and np.isfinite(pictures).all()
pipe.save("saved", num_inference_steps=2, rng=jax.random.key(0))
print("ok: from_diffusers, a picture, save")
