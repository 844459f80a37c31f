"""How much of what `anyjax.flax.source` writes is right, and how long and how fast it is.

python benchmarks/flax_source.py --plain                          # the modules of the tests
python benchmarks/flax_source.py --shard 0/7 --out sample.jsonl   # transformers' types
python benchmarks/flax_source.py --types bert,llama --checks forward
python benchmarks/flax_source.py --out sample.jsonl --summary     # print what a file holds

proof/tiny_models.py and proof/tiny_inputs.py build a tiny model of each of transformers' types, and
inputs that it takes. Each type runs in a worker process, which is started anew after a crash or
when the time is up; types that the file has are skipped.

Checks, each "ok", "n/a: why", or what went wrong; gradients and values in training may be off by
four times what torch's own are from those that it computes in 64 bits:
  source    the text is written
  forward   values equal torch's
  gradient  of the sum of sines, for every parameter
  shape     another batch size and length, whichever torch takes
  training  model.train() equals torch's where no dropout is left, running statistics included,
            and draws where there is some
  init      finite values without load_params
  speed     a jitted call beside one of anyjax.from_torch(module), in turns
  length    lines of code: those of the file, and those that torch ran. In the Python files of the
            module's own classes (torch's are none), that is every statement that ran in forward and
            what it calls, or in a constructor, with all its lines, and the heads of these functions
            and classes; no blank lines, comments or docstrings on either side
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import re
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHECKS = ("source", "forward", "gradient", "shape", "training", "init", "speed", "length")


def work(pipe, options) -> None:
    """A worker: names come in, rows go out."""
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    import flax_source_case as case
    import torch

    torch.set_num_threads(1)
    pipe.send("ready")
    for name in iter(pipe.recv, None):
        row: dict[str, Any] = {"type": name}
        try:
            found = case.plain(name) if options.plain else case.tiny(name)
            if isinstance(found, str):
                row["unusable"] = found
            else:
                case.checked(row, *found, options.checks)
        except Exception as error:
            row["unusable"] = case.said(error)
        pipe.send(row)


class Worker:
    """A process, replaced after a crash, after a type that took too long, and after many types."""

    def __init__(self, options):
        self.options, self.process, self.done = options, None, 0

    def run(self, name: str) -> dict:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=work, args=(other, self.options), daemon=True)
            self.process.start()
            other.close()
            self.pipe.recv()
        self.pipe.send(name)
        self.done += 1
        try:
            if self.pipe.poll(self.options.timeout):
                row = self.pipe.recv()
                if self.done % 25 == 0:
                    self.stop()
                return row
            why = f"over {self.options.timeout:.0f} s"
        except EOFError:
            why = "the process died"
        self.stop()
        return {"type": name, "source": why}

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join()
            self.process = None


def names_of(options) -> list[str]:
    if options.types:
        return options.types.split(",")
    sys.path.insert(0, str(ROOT))
    if options.plain:
        from tests.flax.codegen.models import CASES

        names = list(CASES)
    else:
        from proof.tiny_models import types

        names = types()
    index, count = map(int, options.shard.split("/"))
    return names[index::count]


def read(path: Path) -> list[dict]:
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def reason(text: str) -> str:
    """An error without its numbers and names, so that like errors are one group."""
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?|\(.*?\)|'.*?'", "#", text)[:100]


def summary(rows: list[dict], checks) -> None:
    usable = [r for r in rows if "unusable" not in r]
    print(f"\n{len(usable)} of {len(rows)} types can be built and called")
    for check in [c for c in checks if c in CHECKS[:6]]:
        asked = [r for r in usable if not r.get(check, "no source").startswith("n/a")]
        good = [r for r in asked if r.get(check) == "ok"]
        share = 100 * len(good) / max(len(asked), 1)
        left = len(usable) - len(asked)
        print(f"{check:9} {share:5.1f} %  {len(good)} of {len(asked)}; does not apply to {left}")
    every = [r for r in usable if all(bad(r, c) is None for c in checks if c in CHECKS[:6])]
    print(f"all       {100 * len(every) / max(len(usable), 1):5.1f} %  {len(every)}")
    groups = collections.defaultdict(list)
    for row in usable:
        first = next(((c, t) for c in checks if (t := bad(row, c))), None)
        if first:
            groups[f"{first[0]}: {reason(first[1])}"].append(row["type"])
    for text, names in sorted(groups.items(), key=lambda x: -len(x[1])):
        print(f"{len(names):4} {text}\n       {', '.join(names)}")
    ratios = {
        "file's code / torch's": lambda r: r["lines"] / r["torch_lines"],
        "the same with the loader": lambda r: r["lines_with_loader"] / r["torch_lines"],
        "jitted call / from_torch's": lambda r: r["ratio"],
        "seconds to write": lambda r: r["seconds"],
    }
    for name, of in ratios.items():
        found = []
        for row in usable:
            try:
                found.append(of(row))
            except (KeyError, ZeroDivisionError):
                continue
        if found:
            print(f"{name}: median {statistics.median(found):.2f}, worst {max(found):.2f}")


def bad(row: dict, check: str) -> str | None:
    """What is wrong; nothing is said of what was not reached."""
    text = row.get(check, "ok")
    return None if not isinstance(text, str) or text == "ok" or text.startswith("n/a") else text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help="tests/flax/codegen/models.py instead")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th type from the i-th on")
    parser.add_argument("--types", help="these, with commas")
    parser.add_argument("--checks", default=",".join(CHECKS), help="some of them, with commas")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for each type")
    parser.add_argument("--out", type=Path, help="a file with one row of JSON for each type")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    options = parser.parse_args()
    options.checks = ["source", *(c for c in options.checks.split(",") if c != "source")]
    rows = read(options.out) if options.out else []
    if not options.summary:
        worker = Worker(options)
        done = {r["type"] for r in rows}
        for name in (n for n in names_of(options) if n not in done):
            row = worker.run(name)
            rows.append(row)
            shown = {c: t[:90] for c in options.checks if (t := bad(row, c))}
            print(name, row.get("unusable") or shown or "ok", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        worker.stop()
    summary(rows, options.checks)


if __name__ == "__main__":
    main()
