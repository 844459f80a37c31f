"""``python -m tests.processes.hostile [PATTERN] [--every N]``: the corpus as a table of formats and
outcomes, with a line for each mutant that fails.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import time
from collections import Counter

from tests.processes.hostile.corpus import CORPUS
from tests.processes.hostile.judge import Judge

RIGHT = ("refused", "same", "other")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.processes.hostile", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="of names, as gguf-*")
    parser.add_argument("--every", type=int, default=1, help="every Nth of them")
    parser.add_argument("--all", action="store_true", help="a line for each mutant")
    options = parser.parse_args()
    for name, value in {
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }.items():
        os.environ.setdefault(name, value)
    mutants = [x for x in CORPUS if fnmatch.fnmatch(x.name, options.pattern)][:: options.every]
    counts: dict[str, Counter[str]] = {}
    start = time.monotonic()
    with Judge() as judge:
        for mutant in mutants:
            verdict = judge(mutant.name)
            counts.setdefault(mutant.format, Counter())[verdict.outcome] += 1
            if options.all or not verdict.right or verdict.seconds > 5:
                print(
                    *verdict[:1], mutant.name, f"{verdict.seconds:.2f}s", verdict.detail, flush=True
                )
    total: Counter[str] = sum(counts.values(), Counter())
    outcomes = [*RIGHT, *sorted({*total} - {*RIGHT})]
    print(f"{'format':<12}" + "".join(f"{x:>10}" for x in ("mutants", *outcomes)))
    for name, count in [*counts.items(), ("all", total)]:
        print(f"{name:<12}{count.total():>10}" + "".join(f"{count[x]:>10}" for x in outcomes))
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
