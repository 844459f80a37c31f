"""The page of other people's packages, written from results/packages.csv."""

from __future__ import annotations

from collections import Counter, defaultdict

from proof import records
from proof.markdown import Reasons, code, kind, table
from proof.records import RESULTS, Row

CHECKS = ("value", "jit", "gradient", "vmap", "save")
MEANING = {
    "value": "`model(...)` equals torch; where weights decide what is run, `apply` without jit",
    "jit": "one `jax.jit` of `model.apply`, traced once, right for values that it never saw",
    "gradient": "gradients of all parameters and of the floats among the inputs equal torch's",
    "vmap": "`jax.vmap` over a batch of the floats among the inputs equals the loop",
    "save": "`anyjax.load` of `model.save` agrees, where sizes are open in other sizes, too",
}


def rows() -> list[Row]:
    """Returns the rows of the cases."""
    return records.read(RESULTS / "packages.csv")


def counts(cases: list[Row]) -> dict[str, Counter[str]]:
    """Returns how many cases are ok, no or n/a, for each check."""
    return {check: Counter(kind(row[check]) for row in cases) for check in CHECKS}


def by_package() -> dict[str, list[Row]]:
    """Returns the rows of each package."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows():
        groups[row["package"]].append(row)
    return groups


def page(written: str) -> str:
    """Returns the page; ``written`` says how it was."""
    summary = [
        [check, *(number[k] for k in ("ok", "no", "n/a")), MEANING[check]]
        for check, number in counts(rows()).items()
    ]
    packages = [
        [code(name), version(name, cases[0]), len(cases), *map(share, counts(cases).values())]
        for name, cases in by_package().items()
    ]
    reasons = Reasons("package")
    parts = [f"### {name}\n\n{_cases(cases, reasons)}" for name, cases in by_package().items()]
    return f"""# Packages of other people

{written}

Layers, networks, densities, solvers and metrics of {len(packages)} packages that are written for
torch, with random weights and as their own pages use them: no code of theirs is changed.
{len(rows())} cases, each beside torch.

{table(["check", "ok", "no", "n/a", "what is checked"], summary)}

A value counts as equal where it differs by at most 1e-4 of the largest value of its array in 32
bits and by 1e-8 in 64, a gradient by 1e-3 and 1e-6; or by four times the distance of torch's own
result from its result in 64 bits. Outputs that are drawn at random are compared in shape.
`jit` traces all arrays, integers too; `gradient` does so where `jit` can. n/a is what torch or the
package itself cannot do here, or what says nothing of the case.

{table(["package", "version", "cases", *CHECKS], packages)}

`make packages` makes the environment and runs the cases that have no result yet;
`make packages ONLY=torch-geometric/GCNConv` runs one again, `make proof` writes this page.

## Cases

{(chr(10) * 2).join(parts)}

## Reasons

{reasons.page() or "None."}
"""


def totals() -> list[list[object]]:
    """Returns a line for each check, for the page with the totals of all suites."""
    cases = rows()
    dates = sorted({row["date"] for row in cases})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    return [
        [f"[packages of other people](packages.md), {check}", f"{len(cases)} cases",
         number["ok"], 0, number["no"], number["n/a"], when]
        for check, number in counts(cases).items()
    ]  # fmt: skip


def version(package: str, row: Row) -> str:
    """Returns the version of a package that a case was run with."""
    named = dict(part.split(" ") for part in row["versions"].split(", "))
    return named.get(package, "not installed")


def share(number: Counter[str]) -> str:
    """Returns how many are ok of those that the check says something of."""
    asked = number["ok"] + number["no"]
    return f"{number['ok']} of {asked}" if asked else "n/a"


def _cases(cases: list[Row], reasons: Reasons) -> str:
    """Returns the table of a package's cases."""
    lines = []
    for row in cases:
        name = f"{row['package']}/{row['case']}"
        cells = []
        for check in CHECKS:
            shown, _, text = row[check].partition(": ")
            cells.append(reasons.link(shown, row[check], name, check) if text else shown)
        lines.append([code(row["case"]), *cells, row["dtype"], row["seconds"], row["date"]])
    return table(["case", *CHECKS, "dtype", "seconds", "date"], lines)
