"""Loading a checkpoint: anyjax beside torchax and transformers, time and memory from one run.

python benchmarks/load.py                                       # makes a checkpoint of 2.6 GB once
python benchmarks/load.py --torchax path/to/venv/bin/python     # an environment with torchax
python benchmarks/load.py --checkpoint FOLDER --rounds 5
python benchmarks/load.py --dtype bfloat16                      # another checkpoint, of 1.3 GB

Every measurement is a process of its own, the loaders take turns, and the files are read once
before each, so that all find them in the page cache. Time counts from after the imports, the
model's class among them, until every array is there. Memory is the peak of the resident set (VmHWM:
anonymous memory and mapped file pages alike) above what it was after the imports, divided by the
bytes of the weights; mapped is the part of it that is pages of files, in the end.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = dict(
    hidden_size=2048, intermediate_size=5632, num_attention_heads=16,
    num_key_value_heads=16, vocab_size=32000,
)  # fmt: skip
SHARD = "1GB"


def anyjax_(folder):
    import jax

    import anyjax

    anyjax.from_pretrained  # noqa: B018 (loads the module)
    return lambda: jax.block_until_ready(anyjax.from_pretrained(folder).params)


def torchax_(folder):
    import jax
    import torchax
    from transformers import AutoModelForCausalLM

    def load():
        module = AutoModelForCausalLM.from_pretrained(folder).eval()
        weights, _ = torchax.extract_jax(module)
        return jax.block_until_ready(weights)

    return load


def transformers_(folder):
    from transformers import AutoModelForCausalLM

    def load():  # maps the files: the bytes are read when a weight is used
        return AutoModelForCausalLM.from_pretrained(folder).state_dict()

    return load


def transformers_read_(folder):
    load = transformers_(folder)

    def read():
        weights = load()
        sum(float(w.view(-1)[:: 4096 // w.itemsize].sum()) for w in weights.values())
        return weights

    return read


def readinto_(folder):  # the bytes alone, one file after the other, into new memory
    def read():
        weights = {}
        for file in sorted(Path(folder).glob("*.safetensors")):
            memory = mmap.mmap(-1, file.stat().st_size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with open(file, "rb", buffering=0) as opened:
                count = opened.readinto(memory)
            assert count == len(memory), "the kernel reads 2 GiB at once at most"
            weights |= tensors(memory)
        return weights

    return read


def tensors(memory) -> dict:
    """The tensors of a safetensors file in memory."""
    import torch

    start = 8 + int.from_bytes(memory[:8], "little")
    header = json.loads(memory[8:start])
    header.pop("__metadata__", None)
    data = torch.frombuffer(memory, dtype=torch.uint8)[start:]
    dtypes = {"F32": torch.float32, "BF16": torch.bfloat16}
    return {
        name: data[slice(*x["data_offsets"])].view(dtypes[x["dtype"]]) for name, x in header.items()
    }


LOADERS = {
    f.__name__.strip("_"): f
    for f in (anyjax_, torchax_, transformers_, transformers_read_, readinto_)
}


def memory(field: str) -> int:
    """Bytes that /proc/self/status says."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(x for x in text.splitlines() if x.startswith(field)).split()[1])


def work(name: str, folder: str) -> dict:
    """One measurement, in this process."""
    import torch
    import transformers

    config = json.loads(Path(folder, "config.json").read_text())
    getattr(transformers, config["architectures"][0])  # imports the model, and much else
    load = LOADERS[name](folder)
    base, base_mapped = memory("VmRSS"), memory("RssFile")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    wall, cpu = time.perf_counter(), time.process_time()
    weights = load()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak, mapped = memory("VmHWM") - base, memory("RssFile") - base_mapped
    weights = [torch.from_dlpack(w) for k, w in weights.items() if "inv_freq" not in k]
    size = sum(w.nbytes for w in weights)
    check = sum(float(w.reshape(-1)[::4099].float().sum()) for w in weights)
    return {"seconds": wall, "cpu_s": cpu, "memory": peak / size, "mapped": mapped / size,
            "check": check}  # fmt: skip


def make(folder: Path, layers: int, dtype: str) -> None:
    """A Llama with random weights, in several files."""
    if not (folder / "config.json").exists():
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        with torch.device("meta"):
            module = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=layers))
        module = module.to_empty(device="cpu")
        for parameter in module.parameters():
            parameter.data.uniform_(-0.02, 0.02)
        module.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=SHARD)


def warm(folder: Path) -> None:
    """The files into the page cache."""
    for file in folder.glob("*.safetensors"):
        with open(file, "rb", buffering=0) as opened:
            while opened.read(1 << 24):
                pass


def run(name: str, folder: Path, python: str) -> dict:
    """One measurement in a process of its own."""
    warm(folder)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([python, __file__, "--worker", name, "--checkpoint", str(folder)],
                          capture_output=True, text=True, env=env)  # fmt: skip
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        sys.exit(f"{name}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return json.loads(line[7:])


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="a folder; by default one is made")
    parser.add_argument("--torchax", help="Python interpreter with torchax installed")
    parser.add_argument("--layers", type=int, default=10, help="of the checkpoint that is made")
    parser.add_argument("--dtype", default="float32", help="of the checkpoint that is made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write all measurements as JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.checkpoint or Path(tempfile.gettempdir()) / f"anyjax-load-{options.dtype}"
    if options.worker == "make":
        make(folder, options.layers, options.dtype)
        return
    if options.worker:
        print("RESULT " + json.dumps(work(options.worker, str(folder))))
        return
    made = ["--layers", str(options.layers), "--dtype", options.dtype, "--worker", "make"]
    subprocess.run([sys.executable, __file__, "--checkpoint", str(folder), *made], check=True)
    names = [n for n in LOADERS if n != "torchax" or options.torchax]
    runs: dict[str, list[dict]] = {n: [] for n in names}
    for _ in range(options.rounds):
        for name in names:
            runs[name].append(
                run(name, folder, options.torchax if name == "torchax" else sys.executable)
            )
    show(runs)
    if options.out:
        options.out.write_text(json.dumps(runs, indent=1))


def show(runs: dict[str, list[dict]]) -> None:
    """Medians, and how many times more the others need than anyjax."""
    print(f"{'loader':<18}{'seconds':>9}{'/ anyjax':>9}{'cpu s':>9}{'/ anyjax':>9}"
          f"{'peak / weights':>16}{'mapped':>9}{'check':>12}")  # fmt: skip
    fields = ("seconds", "cpu_s", "memory", "mapped")
    median = {n: {f: statistics.median(x[f] for x in r) for f in fields} for n, r in runs.items()}
    for name, values in median.items():
        ratio = {f: values[f] / median["anyjax"][f] for f in ("seconds", "cpu_s")}
        print(f"{name:<18}{values['seconds']:>9.2f}{ratio['seconds']:>9.2f}"
              f"{values['cpu_s']:>9.2f}{ratio['cpu_s']:>9.2f}{values['memory']:>16.3f}"
              f"{values['mapped']:>9.3f}{runs[name][0]['check']:>12.4f}")  # fmt: skip
    checks = [r[0]["check"] for r in runs.values()]
    if any(abs(c - checks[0]) > 1e-3 * max(1, abs(checks[0])) for c in checks):
        sys.exit("the checksums differ: no number above means anything")


if __name__ == "__main__":
    main()
