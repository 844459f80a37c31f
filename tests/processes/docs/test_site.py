"""The site builds without a warning, and works in a browser without a network."""

import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from anyjax import errors

pytest.importorskip("sphinx")
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.processes


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def address(site):
    """The address of the site on this machine."""
    handler = partial(Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages; notebooks are not run (`make docs` runs them)."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    run = subprocess.run(
        [*command, ROOT / "docs", out],
        capture_output=True,
        text=True,
        env=os.environ | {"ANYJAX_DOCS_EXECUTE": "off"},
    )
    assert run.returncode == 0, run.stderr
    return out


def pages(site: Path) -> list[Path]:
    """The HTML pages that come from a page of docs/."""
    sources = sorted((ROOT / "docs").rglob("*.md"))
    assert len(sources) > 10
    return [site / page.relative_to(ROOT / "docs").with_suffix(".html") for page in sources]


def test_every_page_is_markdown_too(site):
    listed = (site / "llms.txt").read_text()
    for page in pages(site):
        assert page.exists()
        text = page.with_suffix(".md")
        assert text.read_text().lstrip().startswith(("#", "<")), text
        assert f"({text.relative_to(site)})" in listed


def test_each_error_has_its_page(site):
    classes = [x for x in vars(errors).values() if getattr(x, "__module__", "") == errors.__name__]
    names = [x.__name__ for x in classes if isinstance(x, type)]
    assert len(names) > 30
    for name in names:
        assert (site / "errors" / f"{name}.html").exists(), name


def test_nothing_comes_from_a_network(site):
    for page in pages(site):
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]* rel="stylesheet"[^>]* href="(?:https?:)?//', text), page


def test_search_and_themes_in_a_browser(address):
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no browser tests: install Chromium, as by apt-get install chromium")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        requests, problems = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{address}index.html")
        assert page.locator("html").get_attribute("data-theme") in ("light", "dark")
        for theme in ("light", "dark"):
            page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            brightness = sum(map(int, re.findall(r"\d+", colour)[:3]))
            assert (brightness > 380) == (theme == "light")
        page.goto(f"{address}search.html?q=jit")
        page.wait_for_selector("ul.search li a")
        assert page.locator("ul.search li a").count() > 1
        browser.close()
    assert not problems
    assert not [url for url in requests if not url.startswith((address, "data:"))]
