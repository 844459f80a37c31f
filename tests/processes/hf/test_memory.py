"""The memory that loading takes, in a process of its own."""

import json
import subprocess
import sys

import pytest
import transformers

pytestmark = pytest.mark.processes

MEMORY = """
import json, sys
from pathlib import Path
import anyjax
def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(x for x in lines if x.startswith(field)).split()[1])
small, large = sys.argv[1:]
anyjax.from_pretrained(small)  # modules that transformers imports while it loads
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
model = anyjax.from_pretrained(large)
size = sum(v.nbytes for v in model.params.values())
print(json.dumps([status("VmHWM") - before, size]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_weights_are_in_memory_once(tmp_path):
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8,
        vocab_size=8000,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path, max_shard_size="50MB")
    command = [sys.executable, "-c", MEMORY, "examples/tiny-llama", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, size = json.loads(done.stdout)
    assert size > 120e6
    assert peak < 1.15 * size
