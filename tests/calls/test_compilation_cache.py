"""What XLA compiles, kept for later processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anyjax.calls import compilation_cache

CODE = """
import sys, jax, jax.numpy as jnp, anyjax
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
folder = anyjax.use_compilation_cache(sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((8, 8))).block_until_ready()
print(folder, sum(x == "/jax/compilation_cache/cache_hits" for x in hits))
"""


@pytest.mark.processes
def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    runs = [
        subprocess.run(
            [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [folder for folder, _ in runs] == [str(tmp_path)] * 2
    assert int(runs[0][1]) == 0 < int(runs[1][1])
    assert any(tmp_path.iterdir())


def test_the_folder_is_the_users_own_for_this_processor(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = compilation_cache.default_folder()
    assert folder.parent == tmp_path / "anyjax"
    assert folder.name == f"programs-{compilation_cache.processor()}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert compilation_cache.cache_folder() == Path.home() / ".cache" / "anyjax"
    options = compilation_cache.settings(folder, 1000)
    assert options["jax_compilation_cache_max_size"] == 1000
    assert not folder.exists() and str(folder) not in os.environ.values()
