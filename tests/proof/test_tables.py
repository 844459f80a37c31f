"""The pages of docs/proof are those that the command writes from the results."""

import re
from pathlib import Path

import pytest

from proof import readme, records, tables
from proof.transformers_types import CHECKS

FOLDER = Path(__file__).parents[2] / "docs" / "proof"


@pytest.mark.parametrize("name", tables.pages())
def test_a_page_is_what_the_command_writes(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == tables.pages()[name]


def test_the_readmes_have_the_table_of_today():
    for path, text in readme.pages().items():
        assert path.read_text(encoding="utf-8") == text and "| 2" in text


def test_every_check_that_fails_has_a_reason():
    cells = [row[check] for row in tables.types() for check in CHECKS]
    assert {tables.kind(cell) for cell in cells} <= {"ok", "no", "n/a", ""}
    assert [cell for cell in cells if cell not in ("ok", "") and not cell.partition(": ")[2]] == []


@pytest.mark.parametrize("name", tables.SUITES)
def test_every_case_that_does_not_pass_has_a_reason(name):
    rows = records.read(records.RESULTS / f"{name}.csv")
    bad = [x for x in rows if x["expected"] or x["failed"] or x["skipped"]]
    assert [x for x in bad if not x["reasons"]] == []


def test_every_result_has_a_date_versions_and_a_command():
    rows = [*tables.run_types(), *records.read(records.RESULTS / "runs.csv")]
    assert rows and all(x["date"] and x["versions"] and x["command"] for x in rows)


@pytest.mark.parametrize("name", tables.pages())
def test_links_have_targets(name):
    page = tables.pages()[name]
    assert {*re.findall(r"\]\(#([\w-]+)\)", page)} == {*re.findall(r"^\(([\w-]+)\)=$", page, re.M)}


def test_a_result_that_changes_is_seen(tmp_path, monkeypatch):
    """Of one type: no for ok, with a reason."""
    rows = tables.types()
    row = next(x for x in rows if x["forward"] == "ok")
    row["forward"] = "no: Wrong: array 0 is off"
    records.write(tmp_path / "transformers_types.csv", [*row], rows)
    before = tables.transformers_page()
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    page = tables.transformers_page()
    assert page != before
    assert "array 0 is off" in page and f"   - forward: {row['type']}" in page


def test_operators_and_reasons():
    reasons = tables.Reasons("x")
    row = dict.fromkeys(tables.OUTCOMES, "") | {"name": "add", "mode": "grad", "reasons": "why"}
    assert tables._cell(row | {"passed": "1"}, reasons) == "ok"
    assert tables._cell(row | {"passed": "2", "expected": "1"}, reasons) == "2 ok, [1 no](#x-1)"
    assert tables._cell(row | {"skipped": "1"}, reasons) == "[n/a](#x-2)"
    assert reasons.page().startswith(
        "(x-1)=\n1. `no: why`\n   - grad: add\n\n(x-2)=\n2. `n/a: why`"
    )


def test_the_picture_has_the_numbers(tmp_path):
    pytest.importorskip("matplotlib")
    tables.draw(tmp_path / "types.svg")
    picture = (tmp_path / "types.svg").read_text()
    for check, number in tables.counts_of_types().items():
        assert f"{check}<" in picture
        assert f"{number['ok']} of {number['ok'] + number['no']}<" in picture
