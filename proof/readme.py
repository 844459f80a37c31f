"""The table of README.md and README.zh.md: totals of what docs/proof shows in full."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from proof import tables
from proof.records import ROOT, Row, read

BEGIN, END = "<!-- proof: written by `make proof` -->\n", "<!-- end of proof -->"
PACKAGES = ("jax", "torch", "transformers")
HEADS = {
    "README.md": (
        "what was run, beside its own framework",
        "cases run",
        "checks passed",
        "checks failed",
        "date",
    ),
    "README.zh.md": ("与源框架并排运行的内容", "运行的用例", "通过的检查", "未通过的检查", "日期"),
}
WORDS = {
    "README.md": {"types": "model types of transformers", "of": "{} of {}", "versions": "versions"},
    "README.zh.md": {"types": "transformers 的模型类型", "of": "{} / {}", "versions": "版本"},
}

SUITES = {  # names of suites in the language of a README
    "README.md": {},
    "README.zh.md": {
        "torch's module database": "torch 的模块数据库",
        "torch's operator database": "torch 的算子数据库",
        "TensorFlow functions": "TensorFlow 函数",
        "Keras layers": "Keras 层",
        "JAX functions by way of jax.export": "经 jax.export 导出的 JAX 函数",
        "artifacts of former releases of JAX": "JAX 旧版本的导出产物",
        "functions of unknown sizes": "大小未知的函数",
        "backend tests of onnx": "onnx 的后端测试",
    },
}


def table(file: str) -> str:
    """Returns the table in the language of a README; "failed" has what is expected to fail, too."""
    words, dates = WORDS[file], tables._dates(tables.run_types())
    total, lines = len(tables.types()), []
    for check, number in tables.counts_of_types().items():
        run = number["ok"] + number["no"]
        page = f"[{words['types']}](docs/proof/transformers.md): {check}"
        lines.append([page, words["of"].format(run, total), number["ok"], number["no"], dates])
    for name in tables.SUITES:
        for suite, group in groupby(tables.runs(name), key=lambda row: row["suite"]):
            rows = list(group)
            cases = words["of"].format(rows[0]["cases"], rows[0]["total"])
            passed, *bad = (sum(int(x[k]) for x in rows) for k in tables.OUTCOMES[:3])
            date = max(x["date"] for x in rows)
            title = SUITES[file].get(suite, suite)
            lines.append([f"[{title}](docs/proof/{name}.md)", cases, passed, sum(bad), date])
    sets = lambda row: tuple(row[k] for k in ("date", "python", *PACKAGES, "tests"))
    for names, group in groupby(read(tables.RESULTS / "versions.csv"), key=sets):
        date, python, *packages, tests = names
        if tests:  # of one file alone
            continue
        passed, bad = (sum(map(int, x)) for x in zip(*map(_passed_and_not, group)))
        installed = ", ".join(f"{k} {v}" for k, v in zip(PACKAGES, packages))
        text = f"[{words['versions']}](docs/proof/versions.md): Python {python}, {installed}"
        lines.append([text, passed + bad, passed, bad, date])
    return tables.table(HEADS[file], lines) + "\n"


def _passed_and_not(row: Row) -> tuple[int, int]:
    return int(row["passed"]), int(row["expected"]) + int(row["failed"])


def pages() -> dict[Path, str]:
    """Returns the READMEs with the tables of today."""
    between = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    read_file = lambda file: (ROOT / file).read_text(encoding="utf-8")
    return {
        ROOT / file: between.sub(lambda _, file=file: BEGIN + table(file) + END, read_file(file))
        for file in HEADS
    }
