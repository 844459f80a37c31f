"""The page of an explored model: strict data, inert names, nothing else that it needs."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

import anyjax
from tests.explorer.models import HOSTILE, X, hostile, model


def text_of(report, tmp_path):
    report.to_html(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def data_of(text):
    (data,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.S)
    return json.loads(data, parse_constant=pytest.fail)


def test_the_page_has_all_figures(tmp_path):
    report = anyjax.explore(model(), X, mesh={"model": 2})
    data = data_of(text_of(report, tmp_path))
    assert {k: data[k] for k in report.as_dict()} == json.loads(report.to_json())
    programs = {path: data["programs"][i] for path, i in data["programOf"].items()}
    assert programs == report.programs
    assert len(data["programs"]) < len(programs)  # equal blocks have one text


def test_the_page_needs_nothing_else(tmp_path):
    text = text_of(anyjax.explore(model(), X), tmp_path)
    addresses = set(re.findall(r"\w+://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses  # that one is the name of SVG, which nobody fetches
    assert not re.findall(r"<(?:link|img|iframe|object|embed|base)\b|\bsrc\s*=|@import|url\(", text)
    assert not re.findall(r"\bfetch\(|XMLHttpRequest|\w+HTML|insertAdjacent|eval\(", text)
    assert "default-src 'none'" in text and text.isascii()


def test_names_are_inert(tmp_path):
    report = anyjax.explore(hostile(), np.ones((1, 3), np.float32))
    assert any(HOSTILE in x.name for x in report.arrays)
    report = dataclasses.replace(report, name=HOSTILE, origin=HOSTILE, notes=(HOSTILE, "{{data}}"))
    text = text_of(report, tmp_path)
    assert "<img" not in text and text.count("</script>") == 2
    assert data_of(text)["notes"] == [HOSTILE, "{{data}}"]
    assert "<img" not in report._repr_html_() and "&lt;img" in report._repr_html_()


def test_long_programs_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("anyjax.explorer.texts.EQUATIONS", 4)
    monkeypatch.setattr("anyjax.explorer.texts.CHARACTERS", 500)
    programs = anyjax.explore(model(), X).programs
    assert max(map(len, programs.values())) < 550
    assert re.search(r"# ... and \d+ (equations|lines) more$", programs[""])
    assert "more" not in anyjax.explore(anyjax.from_torch(torch.nn.ReLU()), X).programs[""]
