"""The page of a report has all figures, needs nothing else, and is inert whatever names are."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

from anyjax.compare.differences import Error, distances
from anyjax.compare.judge import Passes
from anyjax.compare.side import Passed
from anyjax.errors import NotWritten
from anyjax.parity.report.page import CELLS, COLUMNS, MAPS
from tests.parity.reports import HOSTILE, comparison, faulty, passes, report


def text_of(x, tmp_path):
    x.to_html(tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def data_of(text):
    """The figures in a page, by strict JSON: no NaN."""

    def refuse(name):
        raise AssertionError(name)

    (data,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.S)
    return json.loads(data, parse_constant=refuse)


def test_a_page_has_all_figures_of_the_report(tmp_path):
    x = faulty()
    data = data_of(text_of(x, tmp_path))
    rows = [dict(zip(COLUMNS, row)) for row in data["modules"]]
    assert [row["path"] for row in rows] == ["0", "1", ""]
    assert [bool(row["fault"]) for row in rows] == [False, True, False]
    for row, module in zip(rows, x.modules):
        assert row["added"] == pytest.approx(module.added.rms / module.scale, rel=0.01)
        assert row["rounding"] == pytest.approx(module.rounding / module.scale, rel=0.01)
    assert len(data["gradients"]) == 5 and data["verdict"] == x.verdict
    assert data["versions"]["torch"] == torch.__version__


def test_a_page_needs_nothing_else(tmp_path):
    text = text_of(faulty(), tmp_path)
    addresses = set(re.findall(r"\w+://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses  # that one is the name of SVG, which nobody fetches
    assert not re.findall(r"<(?:link|img|iframe|object|embed|base)\b|\bsrc\s*=|@import|url\(", text)
    assert not re.findall(r"\bfetch\(|XMLHttpRequest|\w+HTML|insertAdjacent|eval\(", text)
    assert "default-src 'none'" in text and '<html lang="en">' in text
    assert text.isascii()


def test_the_template_is_in_the_package():
    from importlib.resources import files

    assert files("anyjax.parity.report").joinpath("page.html").is_file()


def test_names_and_notes_are_inert(tmp_path):
    named = [comparison(HOSTILE, 1e-2, fault=HOSTILE, kind=HOSTILE, wide=0.1), comparison("")]
    options = {"notes": (HOSTILE, "{{data}}"), "places": {HOSTILE: HOSTILE}, "gradients": named}
    x = dataclasses.replace(report(named, **options), model=HOSTILE, versions={HOSTILE: HOSTILE})
    text = text_of(x, tmp_path)
    assert "<img" not in text and text.count("</script>") == 2
    data = data_of(text)
    assert data["model"] == data["modules"][0][0] == data["notes"][0] == HOSTILE
    assert data["notes"][1] == "{{data}}"


def test_what_is_not_finite_is_told(tmp_path):
    nothing = Error(np.inf, np.inf, float("nan"), np.inf, np.inf)
    values = np.array([[1.0, np.nan], [np.inf, 2.0]])
    x = report(
        [dataclasses.replace(comparison("", fault="is inf off"), total=nothing, added=nothing)],
        passes=passes(values, np.array([[np.nan, np.nan], [np.inf, 2.5]])),
        seconds={"JAX": float("nan")},
    )
    data = data_of(text_of(x, tmp_path))
    row = dict(zip(COLUMNS, data["modules"][0]))
    assert (row["added"], row["cosine"], data["seconds"]) == ("inf", "nan", {"JAX": "nan"})
    (maps,) = data["maps"]
    assert maps["reference"]["cells"] == [[1.0, "nan"], ["inf", 2.0]]
    assert maps["difference"]["cells"] == [["inf", 0.0], [0.0, 0.5]]


def test_differences_of_equal_infinities_are_0():
    inf, nan = np.inf, np.nan
    got = distances(np.array([inf, nan, inf, nan, 1]), np.array([inf, nan, -inf, 1, 1.5]))
    assert got.tolist() == [0, 0, inf, inf, 0.5]


def test_heat_maps_reduce_by_blocks(tmp_path):
    values = np.zeros((2, 60, 96))
    values[1, 0, 2:4] = 3.0
    others = values.copy()
    others[1, 0, 3] = -5.0
    x = report([comparison("", 1.0, fault="is 1 off")], passes=passes(values, others))
    (maps,) = data_of(text_of(x, tmp_path))["maps"]
    cells = {k: np.array(maps[k]["cells"]) for k in ("reference", "model", "difference")}
    assert maps["reference"]["size"] == [120, 96] and maps["sameInputs"]
    assert {x.shape for x in cells.values()} == {(CELLS, CELLS)}
    # 120 rows in 48 blocks of 2 and 3, 96 columns in 48 blocks of 2
    row = 24
    assert cells["reference"][row, 1] == 3.0 / 2 and cells["model"][row, 1] == -0.5
    assert cells["difference"][row, 1] == 8.0 and (cells["difference"] > 0).sum() == 1


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 1, 1), (3, 0), (2, 16, 8, 8)])
def test_heat_maps_of_any_shape(tmp_path, shape):
    values = np.ones(shape)
    x = report([comparison("", 1.0, fault="is 1 off")], passes=passes(values, values + 1))
    maps = data_of(text_of(x, tmp_path))["maps"]
    expected = [32, 64] if values.ndim == 4 else [1, values.size]
    assert [m["reference"]["size"] for m in maps] == ([expected] if values.size else [])


def test_heat_maps_of_other_shapes_have_no_difference(tmp_path):
    pair = passes(np.ones((4, 4)), np.ones((4, 5)))
    x = report([comparison("", np.inf, fault="shapes differ")], passes=pair)
    (maps,) = data_of(text_of(x, tmp_path))["maps"]
    assert maps["difference"] is None and maps["model"]["size"] == [4, 5]


def test_a_page_of_2000_modules_is_small(tmp_path):
    names = [f"blocks.{i}.a_layer.weight" for i in range(2000)]
    fault = "differs by 1.0e-03 in 64 bits, where the reference's rounding is 1.0e-08"
    values = np.random.default_rng(0).standard_normal((300, 300))
    sides = Passed({x: [values] for x in names}), Passed({x: [values * 1.1] for x in names})
    x = report(
        [*(comparison(name, 1.234e-5, fault=fault) for name in names), comparison("")],
        gradients=[comparison(name, 1.234e-5, fault=fault) for name in names],
        passes=Passes(sides[0], sides[1], sides[1], None, None),
    )
    text = text_of(x, tmp_path)
    assert len(data_of(text)["maps"]) == MAPS
    assert len(text) < 1.5e6


def test_a_page_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    x = report([comparison("")])
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    for target in (tmp_path / "folder", tmp_path / "file" / "page.html"):
        with pytest.raises(NotWritten, match="cannot be written"):
            x.to_html(target)
    x.to_html(tmp_path / "new" / "page.html")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(NotWritten, match="No space left"):
        x.to_html(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder", "new"]
