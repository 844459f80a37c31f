"""A browser for tests of pages, and a window of it that notes what a page logs and fetches."""

from __future__ import annotations

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


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

    def __init__(self, browser, width=1200, scheme="light", **options):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
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
