"""The page of a report: needs nothing else, is inert whatever names are, works by keyboard."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import torch

import tojax
from tojax.errors import NotWritten
from tojax.parity import Report
from tojax.parity.errors import Error
from tojax.parity.judge import Comparison, Passes
from tojax.parity.page import CELLS, COLUMNS, MAPS, difference
from tojax.parity.sides import Passed
from tojax.parity.text import predictions

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
HOSTILE = "</script><img src=x onerror=alert(1)>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def healthy():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8))
    return tojax.from_torch(module)


def faulty():
    model = healthy()
    model.source.module[1].eps = 1e-2
    return tojax.verify(model, X, gradients=True)


def comparison(path, added=1e-8, fault="", kind="Linear", **options):
    error = lambda x: Error(x, x, 1.0, 1.0, x)
    figures = {"total": error(2 * added), "added": error(added), "rounding": 1e-8, "wide": 0.0}
    x = Comparison(path, kind, (2, 3), "float32", **figures, scale=1.0, fault=fault)
    return dataclasses.replace(x, **options)


def report(modules, **options):
    return Report("net", "torch", "float32", [*modules], **options)


def wide_report(count, **options):
    """A report of many modules, with a fault in the middle."""
    paths = [f"blocks.{i // 4}.layer_with_a_long_name.{i % 4}" for i in range(count - 1)]
    modules = [comparison(path, added=10.0 ** -(3 + i % 9)) for i, path in enumerate(paths)]
    modules[count // 2] = dataclasses.replace(modules[count // 2], fault="is 1 off", wide=0.1)
    return report([*modules, comparison("")], **options)


def passes(values, others, path=""):
    one, two = Passed({path: [values]}), Passed({path: [others]})
    return Passes(one, two, two, None, None)


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

    assert files("tojax.parity").joinpath("page.html").is_file()


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
    got = difference(np.array([inf, nan, inf, nan, 1]), np.array([inf, nan, -inf, 1, 1.5]))
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


# In a browser.


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("no browser tests: pip install playwright")
    place = next(filter(None, map(shutil.which, BROWSERS)), None)
    if place is None:
        pytest.skip("no browser tests: install Chromium, as by apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A page in the browser, with what it has logged and asked the network for."""

    def __init__(self, browser, width=1200, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.messages, self.requests = [], []
        self.page.on("console", lambda x: self.messages.append(x.text))
        self.page.on("pageerror", lambda x: self.messages.append(str(x)))
        self.page.on("request", lambda x: self.requests.append(x.url))

    def open(self, x, tmp_path):
        file = tmp_path / "report.html"
        x.to_html(file)
        self.page.goto(file.as_uri())
        assert self.messages == [] and self.requests == [file.as_uri()]
        return self.page

    def rows(self):
        """The paths of the rows that are visible."""
        items = self.page.locator("[role=treeitem]:visible")
        return [x.partition(",")[0] for x in items.evaluate_all("a => a.map(x => x.ariaLabel)")]


@pytest.fixture
def window(browser):
    window = Window(browser)
    yield window
    window.context.close()


browsing = pytest.mark.processes


def deep():
    return report(
        [comparison("a.0.x"), comparison("a.0.y"), comparison("a.0"), comparison("a"),
         comparison("b.0.x", 0.1, fault="is 0.1 off", wide=0.1), comparison("b.0"), comparison("b")]
        + [comparison(f"c.{i}") for i in range(40)]
        + [comparison("")]
    )  # fmt: skip


@browsing
def test_a_fault_is_in_sight(window, tmp_path):
    page = window.open(faulty(), tmp_path)
    assert page.locator("h1").inner_text() == "Sequential beside torch"
    assert page.locator(".verdict strong").inner_text() == "Fault"
    assert [x.inner_text() for x in page.locator("h2").all()] == [
        "Modules at fault", "Error against depth", "Modules", "Values of the worst modules",
        "Gradients",
    ]  # fmt: skip
    assert window.rows() == ["(output)", "0", "1"]
    widths = page.locator("[role=treeitem] .bars i.added").evaluate_all(
        "a => a.map(x => parseFloat(x.style.width))"
    )
    assert widths[2] > 80 and widths[1] < 20  # of 1e-8 to 1e-1
    assert page.locator("canvas[role=img]").count() == 3
    assert page.locator("table tbody tr").count() == 5


@browsing
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


@browsing
def test_branches_fold_by_mouse(window, tmp_path):
    page = window.open(deep(), tmp_path)
    assert window.rows() == ["(output)", "a", "a.0", "a.0.x", "a.0.y", "b", "b.0", "b.0.x", "c"]
    item = page.locator("[role=treeitem][aria-label^='c,']")
    assert item.get_attribute("aria-expanded") == "false" and page.locator("text=39").count() == 0
    item.locator(".row").first.click()  # its rows are built now
    assert item.get_attribute("aria-expanded") == "true" and "c.39" in window.rows()
    page.locator("[role=treeitem][aria-label^='a,'] .row").first.click()
    assert "a" in window.rows() and "a.0" not in window.rows()


@browsing
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


@browsing
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


@browsing
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


@browsing
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


@browsing
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


@browsing
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


@browsing
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


@browsing
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
