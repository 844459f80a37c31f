"""A saved model against the checkpoint it came from: size, save, load to first call, steady time.

Loading is timed in processes of their own, one kind after the other; ratios are of medians.
``python benchmarks/saved.py [ROUNDS]``
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import anyjax

DEMO = str(Path(__file__).parents[1] / "examples" / "tiny-llama")
IDS = np.arange(3, 35).reshape(1, 32)
OPTIONS = dict(max_new_tokens=32, do_sample=False, eos_token_id=-1)
START = "import time; began = time.perf_counter(); import numpy as np, anyjax\n"
CALLS = {
    "forward": "out = model(input_ids=ids, use_cache=False).logits",
    "generate": "out = anyjax.generate(model, ids{options})",
}
LOADS = {
    "loaded": "model = anyjax.load({folder!r})",
    "checkpoint": "model = anyjax.from_pretrained({demo!r})",
}


def first(kind: str, call: str, folder: str) -> float:
    """Seconds from the start of Python's code to the first result, in a new process."""
    given = "" if kind == "loaded" else f", **{OPTIONS!r}"
    code = START + LOADS[kind].format(folder=folder, demo=DEMO)
    code += f"\nids = np.array({IDS.tolist()})\n" + CALLS[call].format(options=given)
    code += "\nout.block_until_ready(); print(time.perf_counter() - began)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout.split()[-1])


def steady(calls: dict, rounds: int) -> dict[str, float]:
    """Median seconds of each call, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call().block_until_ready()
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call().block_until_ready()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(x) for name, x in times.items()}


def main(rounds: int) -> None:
    """Prints one line for each figure."""
    model = anyjax.from_pretrained(DEMO)
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/llama"
        for name, loop in (("calls", None), ("calls and loop", OPTIONS)):
            began = time.perf_counter()
            model.save(folder, input_ids=IDS, use_cache=False, generate=loop)
            print(f"save, {name}: {time.perf_counter() - began:.1f} s")
        for file in sorted(Path(folder).iterdir()):
            print(f"  {file.name:<24} {file.stat().st_size:>10,} bytes")
        weights = sum(x.nbytes for x in model.params.values())
        print(f"  weights in memory        {weights:>10,} bytes")
        for call in CALLS:
            times = {kind: [] for kind in LOADS}
            for _ in range(rounds):
                for kind in LOADS:
                    times[kind].append(first(kind, call, folder))
            shown = {k: [f"{x:.1f}" for x in v] for k, v in times.items()}
            one, other = (statistics.median(times[k]) for k in LOADS)
            print(f"process start to first {call}: loaded / checkpoint {one / other:.2f} {shown}")
        back = anyjax.load(folder)
        kinds = {"loaded": (back, {}), "unsaved": (model, OPTIONS)}
        forward = {
            k: lambda m=m: m(input_ids=IDS, use_cache=False).logits for k, (m, _) in kinds.items()
        }
        text = {k: lambda m=m, o=o: anyjax.generate(m, IDS, **o) for k, (m, o) in kinds.items()}
        for name, calls in (("forward", forward), ("generate", text)):
            found = steady(calls, 20 * rounds)
            ratio = found["loaded"] / found["unsaved"]
            shown = {k: f"{1e3 * v:.2f} ms" for k, v in found.items()}
            print(f"steady {name}: loaded / unsaved {ratio:.2f} {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
