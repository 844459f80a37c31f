"""The compiler of NVIDIA GPUs, where there is none, for a program of JAX, without PyTorch."""

import importlib.util

import jax
import jax.numpy as jnp

import anyjax

assert importlib.util.find_spec("torch") is None
x = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16)
product = anyjax.from_stablehlo(jax.export.export(jax.jit(lambda x: x @ x))(x))
report = anyjax.parallel.compile_for(product, "h100-1", "tp", x)
assert report.fits and report.traffic > 0, report
print(f"ok: compile_for an H100: {report.traffic:,} bytes moved")
