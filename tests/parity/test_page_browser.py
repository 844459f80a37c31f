"""The page of a report in a browser: folds by mouse and keyboard, can be read, asks for nothing."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from anyjax.compare.differences import Error
from anyjax.parity.predictions import predictions
from tests.browser import Window
from tests.parity.reports import HOSTILE, comparison, faulty, passes, report, wide_report

pytestmark = pytest.mark.processes  # that of the browser


def deep():
    return report(
        [comparison("a.0.x"), comparison("a.0.y"), comparison("a.0"), comparison("a"),
         comparison("b.0.x", 0.1, fault="is 0.1 off", wide=0.1), comparison("b.0"), comparison("b")]
        + [comparison(f"c.{i}") for i in range(40)]
        + [comparison("")]
    )  # fmt: skip


def test_a_fault_is_in_sight(window, tmp_path):
    page = window.open(faulty(), tmp_path)
    assert page.locator("h1").inner_text() == "Sequential beside torch"
    assert page.locator(".verdict strong").inner_text() == "Fault"
    assert [x.inner_text() for x in page.locator("h2").all()] == [
        "Modules at fault", "Error against depth", "Modules", "Values of the worst modules",
        "Gradients",
    ]  # fmt: skip
    assert window.rows() == ["(output)", "0", "1"]
    width = lambda name: page.locator(f"[aria-label^='{name},'] > .row i.added").evaluate_all(
        "a => a.map(x => parseFloat(x.style.width))"
    )
    assert width("1")[0] > 80  # of 1e-8 to 1e-1
    assert all(x < 20 for x in width("0"))  # rounding, of which a machine may have none
    assert width("(output)") == []  # the model itself adds 0
    assert page.locator("canvas[role=img]").count() == 3
    assert page.locator("table tbody tr").count() == 5


def test_a_healthy_model_and_its_predictions(window, tmp_path):
    logits = np.random.default_rng(0).standard_normal((2, 6, 11))
    shifted = logits.copy()
    shifted[1, 3] = -shifted[1, 3]
    ids = np.zeros((2, 6), int)
    x = report([comparison("a"), comparison("")], predictions=predictions(shifted, logits, ids))
    page = window.open(x, tmp_path)
    assert page.locator(".verdict strong").inner_text() == "Equal"
    part = page.locator("section", has_text="Predictions")
    assert "row 1, position 3" in part.inner_text()
    page.get_by_role("slider", name="KL divergence").press("End")
    assert part.locator(".tip").inner_text().startswith("position 5\nKL 0")


def test_branches_fold_by_mouse(window, tmp_path):
    page = window.open(deep(), tmp_path)
    assert window.rows() == ["(output)", "a", "a.0", "a.0.x", "a.0.y", "b", "b.0", "b.0.x", "c"]
    item = page.locator("[role=treeitem][aria-label^='c,']")
    assert item.get_attribute("aria-expanded") == "false"
    assert page.locator("[aria-label^='c.39,']").count() == 0
    item.locator(".row").first.click()  # its rows are built now
    assert item.get_attribute("aria-expanded") == "true" and "c.39" in window.rows()
    page.locator("[role=treeitem][aria-label^='a,'] .row").first.click()
    assert "a" in window.rows() and "a.0" not in window.rows()


def test_branches_fold_by_keyboard(window, tmp_path):
    page = window.open(deep(), tmp_path)
    focused = lambda: page.evaluate("document.activeElement.ariaLabel").partition(",")[0]

    def press(*keys):
        for key in keys:
            page.keyboard.press(key)
        assert page.locator("[role=treeitem][tabindex='0']").count() == 1
        return focused()

    page.locator("[role=treeitem][tabindex='0']").focus()
    assert press("ArrowDown") == "a" and press("ArrowRight") == "a.0"
    assert press("ArrowLeft") == "a.0" and "a.0.x" not in window.rows()  # folds
    assert press("ArrowLeft") == "a" and press("ArrowDown", "ArrowDown") == "b"
    assert press("ArrowUp") == "a.0" and press("Enter", "ArrowDown") == "a.0.x"
    assert press("End") == "c" and press("Space") == "c" and press("End") == "c.39"
    assert press("ArrowUp") == "c.38" and press("Home") == "(output)"
    assert press("ArrowLeft") == "(output)" and window.rows() == ["(output)"]
    assert press("ArrowDown") == "(output)" and press("ArrowRight", "ArrowRight") == "a"


def test_the_filter_and_faults_only(window, tmp_path):
    page = window.open(deep(), tmp_path)
    before = window.rows()
    page.fill("#filter", "C.3")
    assert window.rows() == ["(output)", "c", "c.3", *(f"c.3{i}" for i in range(10))]
    assert page.locator("[role=status]").inner_text() == "11 of 48 outputs"
    page.check("#faults-only")
    assert window.rows() == []
    page.fill("#filter", "")
    assert window.rows() == ["(output)", "b", "b.0", "b.0.x"]
    page.uncheck("#faults-only")
    assert window.rows() == before
    page.fill("#filter", "c.3")
    page.locator("ol.faults button").click()  # shows a module that the filter hides
    assert page.evaluate("document.activeElement.ariaLabel").startswith("b.0.x, Linear, fault")


def luminance(colour):
    channels = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one, two):
    dark, light = sorted(map(luminance, (one, two)))
    return (light + 0.05) / (dark + 0.05)


TEXTS = (
    "body", ".verdict strong", ".muted", "dt", ".kind", ".badge", ".why", ".form", "button.link",
    ".row > .figure", "figcaption", ".readout",
)  # fmt: skip
SHAPES = ("i.added", "i.tick")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(browser, tmp_path, scheme):
    window = Window(browser, scheme=scheme)
    page = window.open(faulty(), tmp_path)
    colour = lambda name, kind: page.locator(name).first.evaluate(
        f"x => getComputedStyle(x).{kind}"
    )
    for _ in range(2):  # by the system's preference, then by the button
        paper = colour("body", "backgroundColor")
        assert (luminance(paper) > 0.9) == (scheme == "light")
        assert (luminance(paper) < 0.02) == (scheme == "dark")
        low = [x for x in TEXTS if contrast(colour(x, "color"), paper) < 4.5]
        low += [x for x in SHAPES if contrast(colour(x, "backgroundColor"), paper) < 3]
        assert low == []
        middle = page.locator(".ramp canvas").first.evaluate(
            "x => [...x.getContext('2d').getImageData(32, 0, 1, 1).data].join()"
        )
        assert contrast(middle, paper) < 1.3  # heat maps, too, have the page's colours
        page.locator("#theme").click()
        scheme = "dark" if scheme == "light" else "light"
    window.context.close()


def test_a_narrow_window_scrolls_down_alone(browser, tmp_path):
    window = Window(browser, width=400)
    x = wide_report(60, gradients=[comparison("a." + "long_name_" * 9, 0.1, fault="is 1 off")])
    page = window.open(dataclasses.replace(x, model="Long" * 40, notes=("note" * 60,)), tmp_path)
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        page.get_by_role("button", name="Open all").click()
    page.emulate_media(media="print")
    assert page.locator("#filters").is_hidden()
    window.context.close()


def test_the_chart_leads_to_a_module(window, tmp_path):
    page = window.open(deep(), tmp_path)
    slider = page.get_by_role("slider", name="Error against depth")
    slider.focus()
    for _ in range(4):
        slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").startswith("b.0.x, 5 of 48")
    assert page.locator(".plot circle.ring").count() == 1
    slider.press("Enter")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("b.0.x,")
    slider.hover(position={"x": 60, "y": 100})
    assert page.locator(".tip").inner_text().startswith("a.0.x\n1 of 48")


def test_cells_are_read_by_keyboard(window, tmp_path):
    values = np.arange(6.0).reshape(2, 3)
    pair = passes(values, values + np.array([[0, 0, 0], [0, 0.25, 0]]))
    x = report([comparison("", 1.0, fault="is 1 off")], passes=pair)
    page = window.open(x, tmp_path)
    page.locator(".panels").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expected = "row 1, column 1: torch 4, JAX 4.25, difference 0.25"
    assert page.locator(".readout").inner_text() == expected


def test_what_is_not_finite_is_shown(window, tmp_path):
    values = np.array([[1.0, np.nan], [np.inf, 2.0]])
    nothing = Error(np.inf, np.inf, float("nan"), np.inf, np.inf)
    x = dataclasses.replace(comparison("", fault="is inf off"), total=nothing, added=nothing)
    page = window.open(report([x, comparison("a")], passes=passes(values, values + 1)), tmp_path)
    cells = page.locator("[role=treeitem]").first.locator(".figure").all_inner_texts()
    assert cells[0] == "inf" and cells[3:5] == ["nan", "inf"]
    page.locator(".panels").focus()
    page.keyboard.press("ArrowRight")
    assert "torch nan, JAX nan, difference 0" in page.locator(".readout").inner_text()


def test_without_javascript_there_is_a_table(browser, tmp_path):
    window = Window(browser, java_script_enabled=False)
    page = window.open(faulty(), tmp_path)
    assert page.locator("#verdict").inner_text().startswith("1 adds an error of")
    assert "of it rounding" in page.locator("pre").inner_text()
    window.context.close()


def test_hostile_names_are_text_in_the_browser(window, tmp_path):
    named = [comparison(HOSTILE, 1e-2, fault=HOSTILE, kind=HOSTILE, wide=0.1), comparison("")]
    pair = passes(np.ones((2, 2)), np.zeros((2, 2)), HOSTILE)
    options = {
        "notes": (HOSTILE,),
        "places": {HOSTILE: HOSTILE},
        "gradients": named,
        "passes": pair,
    }
    x = dataclasses.replace(report(named, **options), model=HOSTILE, reference=HOSTILE)
    page = window.open(x, tmp_path)
    assert page.locator("img").count() == 0 and HOSTILE in page.locator("h1").inner_text()
    assert HOSTILE in page.locator(".name").nth(1).inner_text()


@pytest.mark.parametrize("count", [0, 2000])
def test_no_modules_and_many(window, tmp_path, count):
    page = window.open(wide_report(count) if count else report([]), tmp_path)
    assert page.locator("[role=treeitem]").count() <= 600
    if not count:
        assert "No module was compared." in page.inner_text("main")
        return
    assert "blocks.250.layer_with_a_long_name.0" in window.rows()
    milliseconds = page.evaluate("performance.now()")
    page.get_by_role("button", name="Open all").click()
    assert page.locator("[role=treeitem]").count() > 2000
    assert page.evaluate("performance.now()") - milliseconds < 3000


def test_operators_and_nodes(window, tmp_path):
    operators = [comparison("a/mul"), comparison("a/gelu", 0.1, fault="is 0.1 off")]
    page = window.open(dataclasses.replace(deep(), operators=operators), tmp_path)
    rows = page.get_by_role("region", name="Operators").locator("tbody tr")
    assert rows.count() == 2 and "a/gelu" in rows.first.inner_text()
    window.requests.clear()
    nodes = [comparison("net/dense/MatMul"), comparison("net/dense/BiasAdd")]
    page = window.open(dataclasses.replace(report(nodes), unit="nodes"), tmp_path)
    assert page.get_by_role("tree", name="Nodes by path").count() == 1
    assert "net/dense" in window.rows()
