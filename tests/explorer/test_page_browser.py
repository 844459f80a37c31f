"""The page of an explored model in a browser: it asks for nothing, unfolds, sorts and filters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anyjax
from tests.browser import Window
from tests.explorer.models import HOSTILE, X, hostile, model

pytestmark = pytest.mark.processes  # that of the browser


def names(page, region):
    cells = page.get_by_role("region", name=region).locator("tbody td:first-child button")
    return cells.all_inner_texts()


def test_the_tree_unfolds_by_mouse_and_keyboard(window, tmp_path):
    page = window.open(anyjax.explore(model(), X), tmp_path)
    page.get_by_role("button", name="Close all").click()
    assert window.rows() == ["(model)", "0", "1", "2"]
    page.get_by_role("treeitem", name="0, Block").locator(".name").click()
    assert window.rows()[1:5] == ["0", "0.attention", "0.up", "0.idle"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert window.rows()[2:5] == ["0.attention", "0.attention.query", "0.attention.key"]
    page.keyboard.press("ArrowRight")
    detail = page.get_by_role("region", name="The chosen module")
    assert detail.locator("h3").inner_text() == "0.attention.query"
    assert "weight" in detail.inner_text() and "dot_general" in detail.inner_text()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "0.attention.query" not in window.rows()
    page.keyboard.press("End")
    assert page.locator("[aria-selected=true]").get_attribute("aria-label").startswith("2,")
    assert window.messages == []


def test_figures_and_program_of_a_module(window, tmp_path):
    report = anyjax.explore(model(), X)
    page = window.open(report, tmp_path)
    page.get_by_role("treeitem", name="0.up,").click()
    detail = page.get_by_role("region", name="The chosen module")
    assert "5.12 k" in detail.locator("dl").inner_text()  # 2 * 2 * 5 * 8 * 32
    detail.locator("summary").click()
    assert detail.locator("pre").inner_text() == report.programs["0.up"]
    page.get_by_role("treeitem", name="0, Block").click()
    primitives = detail.locator("tbody").last
    assert primitives.locator("tr", has_text="dot_general").count() == 1
    detail.get_by_role("checkbox").click()
    assert primitives.locator("tr", has_text="dot_general").count() == 0


def test_search(window, tmp_path):
    page = window.open(anyjax.explore(model(), X), tmp_path)
    field = page.get_by_role("searchbox", name="Search paths and classes")
    field.fill("attention$")
    assert window.rows() == ["(model)", "0", "0.attention", "2", "2.attention"]
    assert "2 of 18 modules" in page.inner_text("main")
    field.fill("[")  # no regular expression
    assert window.rows() == []
    field.fill("")
    assert len(window.rows()) > 5 and window.messages == []


def test_params_sort_and_filter(window, tmp_path):
    report = anyjax.explore(model(), X)
    page = window.open(report, tmp_path)
    region = page.get_by_role("region", name="Params")
    assert names(page, "Params") == [x.name for x in report.arrays]
    std = {k: x.std for k, x in report.statistics.items()}
    expected = sorted(std, key=lambda k: -std[k])
    region.get_by_role("button", name="std").click()
    assert names(page, "Params") == expected
    region.get_by_role("button", name="std").click()
    assert [std[k] for k in names(page, "Params")] == sorted(std.values())
    assert region.locator("th[aria-sort=ascending]").inner_text().startswith("std")
    page.get_by_role("searchbox", name="Filter names").fill(r"^0.*bias$")
    assert {*names(page, "Params")} == {k for k in std if k.startswith("0") and k.endswith("bias")}
    page.get_by_role("searchbox", name="Filter names").fill("scale")
    assert "1 NaN, 1 inf" in region.inner_text()
    region.get_by_role("button", name="0.scale").click()
    assert page.locator("[aria-selected=true]").get_attribute("aria-label").startswith("0,")


def test_histograms_have_a_bar_for_each_step_that_is_not_empty(window, tmp_path):
    report = anyjax.explore(model(), X)
    page = window.open(report, tmp_path)
    paths = page.locator("svg.histogram path").evaluate_all("a => a.map(x => x.getAttribute('d'))")
    bars = [sum(n > 0 for n in report.statistics[x.name].counts) for x in report.arrays]
    assert [path.count("M") for path in paths] == bars


def test_sharding(window, tmp_path):
    report = anyjax.explore(model(), X, mesh={"data": 2, "model": 4}, plan="tp+fsdp")
    page = window.open(report, tmp_path)
    part = page.locator("section", has_text="Estimated from the traced")
    assert "data=2, model=4" in part.inner_text() and "all-reduce" in part.inner_text()
    drawn = part.locator("svg.parts")
    assert drawn.count() == len([x for x in report.arrays if x.name in report.sharding.placements])
    labels = drawn.evaluate_all("a => a.map(x => x.ariaLabel)")
    assert {"4 by 2 parts", "2 by 4 parts"} & {*labels}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_colours_and_widths(browser, tmp_path, scheme, width):
    window = Window(browser, width, scheme)
    page = window.open(anyjax.explore(model(), X, mesh={"model": 2}), tmp_path)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    colour = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}
    assert colour() == colours[scheme]
    page.locator("#theme").click()
    assert colour() == colours["dark" if scheme == "light" else "light"]
    assert window.messages == []
    window.context.close()


def test_hostile_names_are_text(window, tmp_path):
    page = window.open(anyjax.explore(hostile(), np.ones((1, 3), np.float32)), tmp_path)
    assert page.locator("img").count() == 0 and HOSTILE in page.inner_text("main")


def test_what_is_missing_is_told(window, tmp_path):
    page = window.open(anyjax.explore(model(), values=False), tmp_path)
    text = page.inner_text("main")
    assert "FLOPs, bytes moved and programs are missing" in text
    assert "The weights were not read" in text and "FLOPs of products" not in text
    assert page.locator(".row.head .cell").count() == 2


def test_many_modules(window, tmp_path):
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(800)))
    page = window.open(anyjax.explore(anyjax.from_torch(net), values=False), tmp_path)
    assert page.get_by_role("region", name="Params").locator("tbody tr").count() == 200
    page.get_by_role("button", name="Show all 1,600").click()
    assert page.get_by_role("region", name="Params").locator("tbody tr").count() == 1600
    page.get_by_role("button", name="Open all").click()
    assert len(window.rows()) == 1601


def test_without_javascript_there_is_a_table(browser, tmp_path):
    window = Window(browser, java_script_enabled=False)
    page = window.open(anyjax.explore(model(), X), tmp_path)
    assert "0.attention.query" in page.locator("pre").inner_text()
    window.context.close()
