"""Memory that is freed, and taken again."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys, jax, jax.numpy as jnp, anyjax
if sys.argv[1] == "reuse":
    assert anyjax.reuse_memory()

@jax.jit
def program(x):
    for _ in range(3):  # arrays of 64 MB
        x = jnp.tanh(x @ jnp.eye(256))
    return x.sum()

x = jnp.ones((2**16, 256))
for _ in range(3):
    program(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    program(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that has them")
def test_calls_take_no_new_pages():
    faults = {}
    for name in ("reuse", ""):
        run = [sys.executable, "-c", CODE, name]
        faults[name] = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    # Fifteen arrays of 64 MB would be 245,000 pages; jax 0.12 keeps them by itself.
    assert faults["reuse"] < max(0.1 * faults[""], 5000)
