"""anyjax beside the other ways to run a model: one table of ratios from one interleaved run.

python benchmarks/run.py --json FILE --plot FILE.svg         # all cases, whatever is installed
python benchmarks/run.py --cases gpt2 decode_small --rounds 3
python benchmarks/run.py --torchax PYTHON    # an interpreter that has it, or its source (.tar.gz)

Every (case, adapter) pair runs in a process of its own; within a round the adapters take turns, so
that a noisy machine hits all of them alike, and every package is compiled to bytecode before. The
table has anyjax's figure and what it is divided by that of each other way, by the best of the
rounds and in parentheses by the median. A figure counts only if its checksum agrees with
that of the framework that the model is from.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HERE = Path(__file__).resolve().parent
TORCH = ("torch_eager", "torch_compile", "torchax")
ALL = (*TORCH, "native")
KERAS = ("tf_function", "tf2jax")
COLUMNS = {
    "torch_eager": "torch eager",
    "torch_compile": "torch.compile",
    "torchax": "torchax",
    "native": "JAX by hand",
    "tf2jax": "tf2jax",
    "tf_function": "tf.function",
}
# By name: what it is, and what else runs it; the first of these has the checksum.
CASES = {
    "gpt2": ("GPT-2 124M, 128 tokens; first is conversion plus first call", ALL),
    "resnet50": ("ResNet-50, an image of 224 x 224", TORCH),
    "vit": ("ViT-base, an image of 224 x 224", TORCH),
    "layers_8": ("Llama of 8 layers of width 128, 32 tokens", ALL),
    "layers_32": ("the same, 32 layers", ALL),
    "decode_small": ("greedy, 64 tokens after 16, Llama of 3.4M parameters", ALL),
    "decode_small_8": ("the same, 8 prompts at once", ALL),
    "decode": ("the same, one prompt, Llama of 246M parameters", ALL),
    "decode_8": ("the same, 8 prompts at once", ALL),
    "decode_wide": ("the same, one prompt, two layers as wide as those of Llama 7B", ALL),
    "train": ("a step of Adam, Llama of 3.4M parameters, 4 x 128 tokens", ALL),
    "load": (
        "a checkpoint of 0.9 GB; memory is the peak / weights",
        ("torch_eager", "torchax"),
    ),
    "keras_mlp": ("four dense layers of Keras; first is from what is not traced yet", KERAS),
    "keras_transformer": ("four layers of Keras", KERAS),
    "keras_lstm": ("an LSTM of Keras", KERAS),
    "keras_resnet": ("ResNet-50 of Keras, 4 images of 96 x 96", KERAS),
    "demo": ("anyjax run on the demo checkpoint: seconds from its start to the first token", ()),
}
AGREE, LIMIT = 1e-3, 1800
PACKAGES = ("jax", "torch", "transformers", "tensorflow-cpu", "tf2jax", "optax")
Runs = dict[str, dict[str, list[dict]]]  # by case and adapter, a dict or an error a round


class Row(NamedTuple):
    """A figure of a case: anyjax's, and by adapter what it is divided by theirs, or why not."""

    case: str
    figure: str
    best: float
    median: float
    ratios: dict[str, tuple[float, float] | str]


def environment(adapter: str, torchax: Path | None) -> tuple[str, dict[str, str]]:
    """Interpreter and variables of an adapter's processes; modules are cached, as users have it."""
    variables = {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    env = os.environ | variables | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    if adapter == "torchax" and torchax and torchax.is_dir():
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(torchax), env.get("PYTHONPATH"))))
    elif adapter == "torchax" and torchax:
        return str(torchax), env
    return sys.executable, env


def compile_bytecode(adapter: str, torchax: Path | None) -> None:
    """Compiles all packages that an adapter's interpreter finds."""
    python, env = environment(adapter, torchax)
    code = "import compileall; compileall.compile_path(maxlevels=99, quiet=2)"
    subprocess.run([python, "-W", "ignore", "-c", code], env=env, cwd=HERE, check=True)


def worker(case: str, adapter: str, torchax: Path | None, folder: str) -> dict:
    """One measurement in a fresh process."""
    python, env = environment(adapter, torchax)
    command = [python, str(HERE / "worker.py"), case, adapter, folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {LIMIT} s"}
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:160]}
    return json.loads(line[7:])


def measure(cases: list[str], rounds: int, missing: set[str], torchax: Path | None) -> Runs:
    """All runs; an adapter that fails in a case is not run in it again."""
    runs: Runs = {
        case: {a: [] for a in ("anyjax", *CASES[case][1]) if a not in missing} for case in cases
    }
    folder = tempfile.gettempdir() + "/anyjax-benchmark-run"
    if "load" in cases:
        make = [sys.executable, str(HERE / "load.py"), "--worker", "make", "--layers", "2"]
        subprocess.run([*make, "--checkpoint", folder], check=True)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=rounds * sum(map(len, runs.values())))
        turns = [(case, a) for _ in range(rounds) for case in runs for a in runs[case]]
        for case, adapter in turns:
            progress.update(task, description=f"{case} {adapter}", advance=1)
            results = runs[case][adapter]
            if not any("error" in result for result in results):
                try:
                    results.append(worker(case, adapter, torchax, folder))
                except KeyboardInterrupt:  # the table has the rounds so far
                    break
    return {case: {a: r for a, r in results.items() if r} for case, results in runs.items()}


def rows_of(case: str, adapters: dict[str, list[dict]]) -> list[Row]:
    """A case's figures with their ratios; an adapter that failed or differs has none."""
    check = lambda result: result.get("check")
    agree = lambda a, b: a is b or abs(a - b) <= AGREE * abs(b)
    errors = {a: r[-1]["error"] for a, r in adapters.items() if "error" in r[-1]}
    valid = {a: results for a, results in adapters.items() if a not in errors}
    source = next((a for a in (*CASES[case][1], "anyjax") if a in valid), None)
    for adapter, results in valid.items():
        if not all(agree(check(r), check(valid[source][0])) for r in results):
            errors[adapter] = f"checksum {check(results[0])}, not {check(valid[source][0])}"
    if "anyjax" in errors:
        return [Row(case, errors["anyjax"], float("nan"), float("nan"), {})]
    rows = []
    for figure in [k for k in valid["anyjax"][0] if k not in ("check", "bandwidth")]:
        best = lambda a, k=figure: min(r[k] for r in valid[a])
        median = lambda a, k=figure: statistics.median(r[k] for r in valid[a])
        ratio = lambda a, b=best, m=median: (b("anyjax") / b(a), m("anyjax") / m(a))
        ratios = {a: errors.get(a) or ratio(a) for a in adapters if a != "anyjax"}
        rows.append(Row(case, figure, best("anyjax"), median("anyjax"), ratios))
    return rows


def show(rows: list[Row]) -> None:
    """Prints the table, and below it what failed."""
    table = Table("case", "figure", "anyjax", *COLUMNS.values(), box=box.MARKDOWN)
    notes: dict[str, None] = {}
    for row in rows:
        cells = []
        for adapter in COLUMNS:
            ratio = row.ratios.get(adapter, "")
            if isinstance(ratio, str):
                cells.append(ratio and "failed")
                notes |= {f"{row.case}, {COLUMNS[adapter]}: {ratio}": None} if ratio else {}
            else:
                cells.append("{:.2f} ({:.2f})".format(*ratio))
        table.add_row(row.case, row.figure, f"{row.best:.4g} ({row.median:.4g})", *cells)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    print("\n".join(notes))


def plot(rows: list[Row], file: Path) -> None:
    """Draws the ratios, a line a figure and a mark a way."""
    import plotting

    figure, axes = plotting.pyplot.subplots(figsize=(8, 1 + 0.22 * len(rows)), layout="constrained")
    for adapter, title in COLUMNS.items():
        points = [(r.ratios.get(adapter), i) for i, r in enumerate(rows)]
        points = [(ratio[1], i) for ratio, i in points if isinstance(ratio, tuple)]
        axes.plot([x for x, _ in points], [y for _, y in points], "o", label=title)
    axes.axvline(1, color="grey")
    axes.set(xscale="log", xlabel="anyjax divided by it (median); left of 1 anyjax is faster")
    axes.set_yticks(range(len(rows)), [f"{r.case} {r.figure}" for r in rows])
    axes.invert_yaxis()
    figure.legend(loc="outside right upper")
    plotting.save(figure, file)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", default=[*CASES], choices=[*CASES], metavar="CASE",
        help="; ".join(f"{name}: {text}" for name, (text, _) in CASES.items()),
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without", nargs="+", default=[], choices=[*COLUMNS], metavar="ADAPTER")
    parser.add_argument("--torchax", type=Path, help="interpreter with torchax, or its source")
    parser.add_argument("--json", type=Path, help="write all measurements")
    parser.add_argument("--plot", type=Path, help="draw the ratios (SVG)")
    options = parser.parse_args()
    missing, torchax = {*options.without}, options.torchax
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++")))):
        print("torch.compile is left out: Inductor needs a compiler of C++, and none is here")
        missing.add("torch_compile")
    with tempfile.TemporaryDirectory() as unpacked:
        if torchax and torchax.name.endswith(".tar.gz"):
            shutil.unpack_archive(torchax, unpacked, filter="data")
            torchax = next(Path(unpacked).rglob("torchax/__init__.py")).parents[1]
        for adapter in ("anyjax", "torchax"):
            compile_bytecode(adapter, torchax)
        runs = measure(options.cases, options.rounds, missing, torchax)
    rows = [row for case, adapters in runs.items() if adapters for row in rows_of(case, adapters)]
    show(rows)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        versions = {x.name: x.version for x in metadata.distributions() if x.name in PACKAGES}
        text = json.dumps({"versions": versions, "cores": os.cpu_count(), "runs": runs}, indent=1)
        options.json.write_text(text)
    if options.plot:
        plot(rows, options.plot)
    if any("checksum" in str(row) for row in rows):
        sys.exit("checksums differ: those numbers mean nothing")


if __name__ == "__main__":
    main()
