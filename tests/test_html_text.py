"""HTML of models and reports in notebooks: escaped, without scripts, in the notebook's colours."""

from __future__ import annotations

import dataclasses
import re

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax import html_text, units
from anyjax.errors import NotWritten
from anyjax.transforms.rolling.report import Loop
from anyjax.transforms.rolling.report import Report as Loops
from tests.browser import Window
from tests.explorer.models import HOSTILE, X, hostile, model
from tests.parity.reports import comparison, report

ROW = np.ones((1, 3), np.float32)


def of_verify():
    named = [comparison(HOSTILE, 1e-2, fault=HOSTILE, kind=HOSTILE, wide=0.1), comparison("")]
    x = report(named, notes=(HOSTILE,), places={HOSTILE: HOSTILE}, gradients=named)
    return dataclasses.replace(x, model=HOSTILE, reference=HOSTILE)


def of_explain():
    mesh = jax.make_mesh((1,), ("<b>",))
    return anyjax.parallel.explain(hostile(), mesh, {}, ROW)


def of_estimate():
    estimate = anyjax.parallel.estimate(hostile(), "v6e-1", {}, ROW)
    return dataclasses.replace(estimate, model=HOSTILE, notes=(HOSTILE,))


OBJECTS = {
    "model": hostile,
    "verify": of_verify,
    "explain": of_explain,
    "estimate": of_estimate,
    "loops": lambda: Loops((Loop(2, 3, (HOSTILE,), HOSTILE),), 2, 1, (HOSTILE,)),
    "explore": lambda: anyjax.explore(hostile(), ROW),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_names_are_escaped(name):
    text = OBJECTS[name]()._repr_html_()
    assert "<img" not in text and "<script" not in text and "</script" not in text
    assert "&lt;img" in text


@pytest.mark.parametrize("make", [of_explain, of_estimate])
def test_a_page_is_written_as_a_whole(make, tmp_path):
    make().save(tmp_path / "new" / "page.html")
    assert "<table" in (tmp_path / "new" / "page.html").read_text("utf-8")
    with pytest.raises(NotWritten):
        make().save(tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_in_a_browser(browser, tmp_path, scheme):
    parts = [make()._repr_html_() for make in OBJECTS.values()] + [model()._repr_html_()]
    window = Window(browser, 400, scheme)
    file = tmp_path / "notebook.html"
    file.write_text(html_text.page("notebook", "".join(parts)), encoding="utf-8")
    page = window.page
    page.goto(file.as_uri())
    assert window.messages == [] and window.requests == [file.as_uri()]
    assert page.locator("img, script").count() == 0 and HOSTILE in page.inner_text("body")
    colours = "a => [...new Set(a.map(x => getComputedStyle(x).color))]"
    assert len(page.locator("body *:not(style)").evaluate_all(colours)) == 1
    assert not page.get_by_text("[32, 8]").first.is_visible()
    page.locator("details").evaluate_all("a => a.forEach(x => x.open = true)")
    assert page.get_by_text("[32, 8]").first.is_visible()
    window.context.close()


def test_a_model_has_its_sizes():
    source = model()
    text = source._repr_html_()
    size = units.size(sum(x.nbytes for k, x in source.params.items() if k[0] == "0"))
    assert f"588 values, {size}" in text and "<details open" not in text
    assert "Model(Sequential from torch, eval mode)" in text and "1,440 values" in text
    arrays = len(source.params) + len(source.state)
    assert re.sub("<[^>]*>", " ", text).count("float32") == arrays + 1  # the precision's line


def test_trees_join_single_steps_and_count_what_is_too_much():
    shapes = {f"a.b.c.{i}.w": jax.ShapeDtypeStruct((2,), np.int8) for i in range(3)}
    text = html_text.tree(shapes)
    assert ">a.b.c</code>" in text and text.count("<details>") == 4 and "6 values, 6 B" in text
    many = {str(i): jax.ShapeDtypeStruct((), np.int8) for i in range(html_text.MANY + 5)}
    assert "and 5 arrays more" in html_text.tree(many)
    assert "<code" not in html_text.tree({"w": torch.zeros(2)} | {"v": np.zeros(2)})


def test_healthy_reports_say_so():
    text = anyjax.verify(model(), X)._repr_html_()
    assert ": equal<" in text and "at fault" not in text
    assert "1, 1 at fault" not in text and "fault" in of_verify()._repr_html_()


def test_saved_pages_are_dark_where_the_reader_is(tmp_path):
    for x in (of_explain(), of_estimate()):
        x.save(tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "color-scheme" in text and x._repr_html_() in text
