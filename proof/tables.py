"""Pages of docs/proof, written from the CSV files of proof/results.

python -m proof.tables            # write them
python -m proof.tables --check    # fail where they are not what this writes
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from proof import chips, packages_page, pipelines_page, records, versions
from proof.markdown import Reasons, code, kind, table
from proof.records import RESULTS, ROOT, Row
from proof.transformers_types import CHECKS

FOLDER = ROOT / "docs" / "proof"
WRITTEN = "<!-- written by `make proof` from proof/results -->"
KINDS = ("ok", "no", "n/a", "")
OUTCOMES = ("passed", "expected", "failed", "skipped")
MEANING = {
    "forward": "the output of one program equals torch's",
    "gradient": "the gradients of all parameters equal torch's",
    "jit": "one `jax.jit` of `model.apply`, traced once, right for values that it never saw",
    "vmap": "`jax.vmap` over a batch of inputs, but for those that decide shapes, equals the loop",
    "roll": "`anyjax.transforms.roll` runs the repeated layers as one loop, the output is the same",
    "save": "`anyjax.load` of `model.save`, and transformers' loading of `save_pretrained`, agree",
    "generate": "greedy generation picks transformers' tokens",
    "shard": "the weights are divided over a mesh of four devices, the output is the same",
    "flax": "`anyjax.flax.source` writes nnx source code, which agrees with torch's module",
}
MEANING |= {
    f"{chip} {dtype}": f"loss and gradients of {dtype} weights compile for {chip}"
    for chip in chips.CHIPS
    for dtype in chips.LIMITS
}
# The page of each file of results: title, what the suites are.
SUITES = {
    "torch": (
        "PyTorch",
        "PyTorch tests its own operators and modules with two databases of samples, `op_db` and "
        "`module_db`. Here the same samples are run by torch and by anyjax, and compared: values, "
        "gradients, forward mode, `vmap`, and several dtypes. "
        "[All operators](../ops.md) has the lowerings.",
    ),
    "tensorflow": (
        "TensorFlow",
        "Functions as TensorFlow's users write them, beside TensorFlow: values under `jit` and "
        "without, gradients, forward mode, `vmap`. "
        "[All operators](../ops-tensorflow.md) has the lowerings.",
    ),
    "keras": (
        "Keras",
        "Every layer of Keras with many settings, and every architecture of "
        "`keras.applications`, beside TensorFlow.",
    ),
    "stablehlo": (
        "StableHLO",
        "JAX functions, exported by `jax.export` and read back; functions of unknown sizes; and "
        "the artifacts that JAX keeps of its former releases.",
    ),
    "onnx": (
        "ONNX",
        "The tests of operators and small models that the package onnx has for its backends. "
        "[All operators](../ops-onnx.md) has the lowerings.",
    ),
}


def types() -> list[Row]:
    """Returns the rows of transformers' types."""
    return records.read(RESULTS / "transformers_types.csv")


def run_types() -> list[Row]:
    """Returns the rows of the types that were run."""
    return [row for row in types() if row["date"]]


def built() -> list[Row]:
    """Returns the rows of the types that can be built small."""
    return [row for row in types() if row["parameters"]]


def counts_of_types() -> dict[str, Counter[str]]:
    """Returns how many types that are built are ok, no, n/a or not run yet, for each check."""
    return {check: Counter(kind(row[check]) for row in built()) for check in CHECKS}


def compiled() -> dict[str, Row]:
    """Returns the rows of the types that were compiled for chips, by type."""
    return {row["type"]: row for row in records.read(RESULTS / chips.FILE)}


def counts_of_chips() -> dict[str, Counter[str]]:
    """Returns how many types that are built are ok, no, n/a or not run yet, for each cell."""
    rows = compiled()
    cell = lambda row, name: rows.get(row["type"], {}).get(name, "")
    return {name: Counter(kind(cell(row, name)) for row in built()) for name in chips.CELLS}


def chip_cell(row: Row, chip: str, reasons: Reasons) -> str:
    """Returns what became of a type on a chip: once, or for each dtype that was run."""
    cells = {dtype: row.get(f"{chip} {dtype}", "") for dtype in chips.LIMITS}
    if len({*cells.values()}) == 1:
        cells = {"": cells.popitem()[1]}
    shown = []
    for dtype, cell in cells.items():
        label, mode = f"{kind(cell)} {dtype}".strip(), f"{chip} {dtype}".strip()
        plain = kind(cell) == cell
        shown.append(label if plain else reasons.link(label, cell, row["type"], mode))
    return ", ".join(label for label, cell in zip(shown, cells.values()) if cell)


def transformers_page() -> str:
    """Returns the page of transformers' types."""
    reasons, lines, programs = Reasons("type"), [], compiled()
    for row in types():
        cells = []
        for check in CHECKS:
            shown, _, text = row[check].partition(": ")
            name = row["type"]
            cells.append(reasons.link(shown, row[check], name, check) if text else shown)
        on_chips = programs.get(row["type"], {})
        cells += [chip_cell(on_chips, chip, reasons) for chip in chips.CHIPS]
        lines.append([code(row["type"]), *cells, row["class"], row["parameters"], row["date"]])
    summary = [
        [check, *(number[k] for k in KINDS), MEANING[check]]
        for check, number in (counts_of_types() | counts_of_chips()).items()
    ]
    limits = ", ".join(f"{x} s for {dtype}" for dtype, x in chips.LIMITS.items())
    return f"""# Model types of transformers

{WRITTEN}

Each type of transformers' `MODEL_MAPPING_NAMES` is one row: its main class (for causal language
modelling where there is one, the base model where there is nothing else), as a tiny random model
built from its own config, with inputs that torch accepts. {_progress()}

{table(["check", "ok", "no", "n/a", "not run yet", "what is checked"], summary)}

A value counts as equal where it differs by at most 1e-4 of the largest value of its array, a
gradient by 1e-3. Where it differs by more, it may differ from torch's result in 64 bits by at most
four times what torch's own result in 32 bits does. Outputs that torch draws at random are compared
in shape. Where the values of an input decide shapes, as the sizes of images do, `model(...)` makes
them static by itself, and `jit` takes the batch of `anyjax.static`, traced once for each layout.
n/a is a check that says nothing of this type.

The compilers of a TPU v6e and of an H100 need no chip. The program is the sum of the squares of the
outputs with its gradients by all parameters, which has the forward pass in it. Nothing is run, and
texts have 16 positions: attention of so few is no kernel. The processor's time that a compiler may
take is {limits}.

{_about_types()}

## Types

{table(["type", *CHECKS, *chips.CHIPS, "class", "parameters", "date"], lines)}

## Reasons

{reasons.page()}
"""


def _progress() -> str:
    """Says how many types ran."""
    ran = run_types()
    partly = sum(not all(row[check] for check in CHECKS) for row in built())
    return (
        f"{len(ran)} of {len(types())} types have run so far, {partly} of them not with all "
        f"checks. {len(ran) - len(built())} of them cannot be built small, or torch takes none of "
        "the inputs: these are n/a throughout, and not counted here."
    )


def _about_types() -> str:
    """Says how the types were run, and compiled."""
    parts: list[str] = []
    for rows in filter(None, (run_types(), [*compiled().values()])):
        parts += [f"Versions: {x}." for x in sorted({row["versions"] for row in rows})]
        command = rows[0]["command"].replace(f" --types {rows[0]['type']} --again", "")
        parts.append(f"```\n{command}\n```")
    return "\n\n".join(parts)


def runs(name: str) -> list[Row]:
    """Returns the runs of the suites in a file of results."""
    return [x for x in records.read(RESULTS / "runs.csv") if x["file"] == f"{name}.csv"]


def share(row: Row) -> str:
    """Returns how many cases ran of how many."""
    full = row["cases"] == row["total"]
    return f"all {row['total']}" if full else f"a sample: {row['cases']} of {row['total']}"


def suite_page(name: str) -> str:
    """Returns the page of the suites in a file of results."""
    title, text = SUITES[name]
    rows = records.read(RESULTS / f"{name}.csv")
    head = ["suite", "mode", "cases", "passed", "expected to fail", "failed", "skipped", "date"]
    totals = [
        [x["suite"], x["mode"], share(x), *(x[k] for k in OUTCOMES), x["date"]] for x in runs(name)
    ]
    reasons, parts = Reasons(name), []
    for suite in dict.fromkeys(row["suite"] for row in rows):
        parts.append(f"## {suite[0].upper() + suite[1:]}\n\n{_operators(rows, suite, reasons)}")
    return f"""# {title}

{WRITTEN}

{text}

{table(head, totals)}

A case has several modes where the suite checks them in one test. What is expected to fail stands in
`tests/expect/` with its reason. Skipped is what the framework itself cannot do.

{_commands(runs(name))}

{(chr(10) * 2).join(parts)}

## Reasons

{reasons.page() or "None."}
"""


def _operators(rows: list[Row], suite: str, reasons: Reasons) -> str:
    """Returns a table with a row for each operator and a column for each mode."""
    chosen = [row for row in rows if row["suite"] == suite]
    modes = sorted({row["mode"] for row in chosen})
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    for row in chosen:
        cells[row["name"]][row["mode"]] = _cell(row, reasons)
    lines = [[code(name), *(by.get(m, "") for m in modes)] for name, by in cells.items()]
    return table(["", *modes], lines)


def _cell(row: Row, reasons: Reasons) -> str:
    """Returns what became of the cases of an operator in a mode."""
    numbers = {k: int(row[k] or 0) for k in OUTCOMES}
    count = lambda n, word: word if sum(numbers.values()) == 1 else f"{n} {word}"
    parts = [count(numbers["passed"], "ok")] if numbers["passed"] else []
    bad = numbers["expected"] + numbers["failed"]
    for n, word in ((bad, "no"), (numbers["skipped"], "n/a")):
        if n:
            text = f"{word}: {row['reasons']}"
            parts.append(reasons.link(count(n, word), text, row["name"], row["mode"]))
    return ", ".join(parts)


def _commands(rows: list[Row]) -> str:
    """Says how suites were run, commands that are equal once."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        groups[row["command"], row["versions"]].append(row["suite"])
    return "\n\n".join(
        f"{', '.join(dict.fromkeys(suites))}: {versions_}.\n\n```\n{command}\n```"
        for (command, versions_), suites in groups.items()
    )


def _totals_of_types() -> list[list[object]]:
    """Returns a line for each check of types that was run."""
    lines: list[list[object]] = []
    dates = dict.fromkeys(CHECKS, _dates(run_types()))
    dates |= dict.fromkeys(chips.CELLS, _dates([*compiled().values()]))
    for check, number in (counts_of_types() | counts_of_chips()).items():
        page = f"[model types of transformers](transformers.md), {check}"
        if ran := sum(number.values()) - number[""]:
            results = number["ok"], 0, number["no"], number["n/a"]
            lines.append([page, f"{ran} types", *results, dates[check]])
    return lines


def index_page() -> str:
    """Returns the page with the totals of all suites."""
    lines = [*_totals_of_types(), *packages_page.totals()]
    for name, (title, _) in SUITES.items():
        for row in runs(name):
            suite = f"[{title}]({name}.md): {row['suite']}" + f", {row['mode']}" * bool(row["mode"])
            lines.append([suite, share(row), *(row[k] for k in OUTCOMES), row["date"]])
    head = ["suite", "cases", "passed", "expected to fail", "failed", "n/a or skipped", "date"]
    operators = ("../ops", "../ops-tensorflow", "../ops-onnx")
    pages = "\n".join(["transformers", "packages", "pipelines", *SUITES, "versions", *operators])
    return f"""# What is tested

{WRITTEN}

Each number on these pages was written by a command from results that stand in `proof/results` as
CSV files, with their dates, versions and commands. `make proof` writes the pages, `make proof-run`
runs everything again, which takes hours.

![Model types of transformers by check](types.svg)

{table(head, lines)}

A suite that checks several modes in one case counts each of them under "passed". A sample is what
was run in the time there was, from the first case on. Suites and modes that are not listed were not
run. An empty cell of a type is a check that was not run yet.

[Versions](versions.md) has what the tests give with other versions of JAX, torch and the rest. The
lowerings of operators are listed in [ops](../ops.md), [ops-tensorflow](../ops-tensorflow.md) and
[ops-onnx](../ops-onnx.md).

## Commands

Model types of transformers:

{_about_types()}

{(chr(10) * 2).join(_commands(runs(name)) for name in SUITES if runs(name))}

```{{toctree}}
:hidden:

{pages}
```
"""


def _dates(rows: list[Row]) -> str:
    """Returns the first and the last date of some rows."""
    dates = sorted({row["date"] for row in rows})
    return " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""


def pages() -> dict[str, str]:
    """Returns the text of each page by its name."""
    texts = {"index.md": index_page(), "transformers.md": transformers_page()}
    texts["packages.md"] = packages_page.page(WRITTEN)
    texts["pipelines.md"] = pipelines_page.page(WRITTEN)
    texts |= {f"{name}.md": suite_page(name) for name in SUITES}
    return texts | {"versions.md": versions.by_feature()}


def draw(path: Path) -> None:
    """Draws the shares of the types by check, in colours for light and dark pages."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    gray, colors = "#808080", dict(zip(KINDS, ("#2a9d6f", "#d1495b", "#8d99ae", "none")))
    settings = {"svg.fonttype": "none", "svg.hashsalt": "proof", "text.color": gray}
    settings |= {"axes.labelcolor": gray, "xtick.color": gray, "ytick.color": gray}
    counts, total = counts_of_types(), max(len(built()), 1)
    with plt.rc_context(settings):
        figure, axes = plt.subplots(figsize=(8, 3.4))
        names = [*counts]
        left = [0.0] * len(names)
        for kind_, label in zip(KINDS, ("ok", "no", "does not apply", "not run yet")):
            widths = [100 * counts[name][kind_] / total for name in names]
            edge = gray if colors[kind_] == "none" else "none"
            axes.barh(names, widths, left=left, color=colors[kind_], label=label, edgecolor=edge)
            left = [x + y for x, y in zip(left, widths)]
        for i, name in enumerate(names):
            asked = counts[name]["ok"] + counts[name]["no"]
            text = f"{counts[name]['ok']} of {asked}"
            axes.text(101, i, text, va="center", fontsize=9)
        axes.invert_yaxis()
        axes.set(xlim=(0, 100), xlabel=f"% of {total} model types")
        axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
        figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)


def main(values: Sequence[str] | None = None) -> int:
    """Writes the pages, or says which are not what would be written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(values)
    from proof import readme

    stale = []
    texts = {FOLDER / name: text for name, text in pages().items()}
    for path, text in (texts | readme.pages()).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not options.check:
                path.write_text(text, encoding="utf-8")
    if options.check:
        print("stale:", ", ".join(stale) or "none")
        return bool(stale)
    draw(FOLDER / "types.svg")
    print("written:", ", ".join(stale) or "nothing new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
