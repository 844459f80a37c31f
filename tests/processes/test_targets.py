"""Programs as the compilers of TPUs and GPUs see them stay what tests/expect/targets.json says."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "expect" / "targets.json"
PYTHON = ROOT / ".compat" / "compilers" / "bin" / "python"
UPDATE = "PYTHONPATH=. .compat/compilers/bin/python -m tests.processes.targets > " + str(
    FILE.relative_to(ROOT)
)
# Peaks of programs that keep their arrays in HBM: small ones lie in a TPU's VMEM.
ESTIMATED = [f"{name}, forward, h100-1" for name in ("llama", "llama, padded", "gpt2", "t5", "vit")]


def complaints(counted: dict[str, dict], held: dict[str, dict]) -> list[str]:
    """Returns figures above the committed ones, and committed ones that can fall."""
    lines = []
    for case in sorted({*counted, *held}):
        have, limits = counted.get(case, {}), held.get(case, {})
        for name in sorted({*have, *limits} - {"peak by estimate"}):
            number, limit = have.get(name), limits.get(name)
            if number is None or limit is None or number > limit:
                lines.append(f"{case}: {name}: {number}, at most {limit}")
            elif number < limit:
                lines.append(f"{case}: {name}: {number} instead of {limit}: {UPDATE}")
    return lines


def run(*arguments: str) -> subprocess.CompletedProcess:
    """Runs Python where the compilers are."""
    if not PYTHON.exists():
        pytest.skip("the compilers are not here: make .compat/compilers/.ready")
    variables = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    env = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | variables
    command = [str(PYTHON), *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_targets():
    out = run("-m", "tests.processes.targets")
    assert out.returncode == 0, out.stderr[-3000:]
    counted, held = json.loads(out.stdout), json.loads(FILE.read_text())
    if counted["versions"] != held["versions"]:
        pytest.skip(f"the figures are of {held['versions']}, installed is {counted['versions']}")
    del counted["versions"], held["versions"]
    assert complaints(counted, held) == []
    far = {x: counted[x]["peak by estimate"] for x in ESTIMATED}
    assert all(0.85 < ratio < 1.15 for ratio in far.values()), far


def test_the_figures_are_of_the_pinned_versions():
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.M))
    versions = json.loads(FILE.read_text())["versions"]
    plain = {k: v.partition("+")[0] for k, v in versions.items() if k in pins}
    assert plain == {k: pins[k] for k in plain} and len(plain) > 3, UPDATE


def test_more_and_less_than_the_figures():
    held = {"llama": {"MB moved": 5.0, "peak by estimate": 1.0}}
    assert complaints({"llama": {"MB moved": 5.0, "peak by estimate": 2.0}}, held) == []
    assert "at most 5.0" in complaints({"llama": {"MB moved": 6.0}}, held)[0]
    assert UPDATE in complaints({"llama": {"MB moved": 4.0}}, held)[0]
    assert complaints({}, held) and complaints({**held, "vit": {"Mcycles": 1}}, held)


@pytest.mark.timeout(600)
def test_a_step_of_a_server_moves_its_weights_and_caches_once():
    out = run("benchmarks/serving.py")
    assert out.returncode == 0, out.stderr[-3000:]
    rows = [x.split(" | ") for x in out.stdout.splitlines()[2:]]
    assert {x[0].strip("| ") for x in rows} == {"llama", "qwen3_moe"}
    assert all(0.95 < float(x[4]) < 1.05 for x in rows), out.stdout


SAVES = """
import sys, jax, jax.numpy as jnp, numpy as np, torch, anyjax
torch.manual_seed(0)
model = anyjax.from_torch(torch.nn.MultiheadAttention(64, 2, batch_first=True).bfloat16().eval())
x = np.ones((1, 256, 64), jnp.bfloat16)
call = dict(query=x, key=x, value=x, need_weights=False)
model.save(sys.argv[1], **call, executables=("v6e-1", "h100-1"))
loaded = anyjax.load(sys.argv[1])
assert not loaded.source.executables
np.testing.assert_array_equal(np.asarray(loaded(**call)[0]), np.asarray(model(**call)[0]))
"""


@pytest.mark.timeout(300)
def test_executables_for_machines_that_are_not_here(tmp_path):
    """A TPU's has its kernel of attention; a GPU's has none that only the device could make."""
    out = run("-W", "ignore", "-c", SAVES, str(tmp_path / "net"))
    assert out.returncode == 0, out.stderr[-3000:]
    entries = json.loads((tmp_path / "net" / "model.json").read_text())["executables"]
    kinds = {x["chips"]: x["machine"]["device"] for x in entries}
    assert kinds == {"v6e-1": "TPU v6 lite", "h100-1": "NVIDIA H100 80GB HBM3"}
    tpu, gpu = ((tmp_path / "net" / f"call-0.{x}.exe").read_bytes() for x in kinds)
    assert b"tpu_custom_call" in tpu and b"fmha" not in gpu


NO_TILES = """
import jax.numpy as jnp, numpy as np, torch, anyjax
class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(64, 64)
    def forward(self, x):  # batch, heads, width, positions
        return self.out(x.permute(0, 3, 1, 2).flatten(2))
model = anyjax.from_torch(Heads().bfloat16())
for positions in (16, 17):
    x = np.ones((2, 4, 16, positions), jnp.bfloat16)
    assert anyjax.parallel.compile_for(model, "h100-1", "tp", x).traffic
"""


@pytest.mark.timeout(300)
def test_products_that_no_tile_fits():
    """Of 17 positions: XLA's own tiles do, where there is a GPU to choose them."""
    out = run("-W", "ignore", "-c", NO_TILES)
    assert out.returncode == 0, out.stderr[-3000:]
