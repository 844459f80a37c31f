"""What ``anyjax ops`` says of each operator, from the results of op_db.py.

python tests/conformance/op_db.py --out results/ops.jsonl    # and with --grad, --jvp, --vmap
python tests/conformance/coverage.py results/ops.jsonl       # writes anyjax/torch/coverage.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

FILE = Path(__file__).parents[2] / "anyjax" / "torch" / "coverage.json"
# An operator is as good as its worst entry; "eager" is right outside jit, where shapes need values.
ORDER = ("skip", "ok", "eager", "error", "wrong")


def merge(lines) -> dict[str, dict[str, str]]:
    """{operator: {mode: status}} of result lines, the last one of an entry and mode counts."""
    latest = {(x["entry"], x["mode"]): x for x in map(json.loads, lines)}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (_, mode), line in sorted(latest.items()):
        modes = found[line["op"]]
        modes[mode] = max(modes.get(mode, "skip"), line["status"], key=ORDER.index)
    return {
        op: {m: s for m, s in sorted(modes.items()) if s != "skip"}
        for op, modes in sorted(found.items())
    }


def main():
    lines = [line for name in sys.argv[1:] for line in Path(name).read_text().splitlines()]
    FILE.write_text(json.dumps(merge(lines), indent=0) + "\n")


if __name__ == "__main__":
    main()
