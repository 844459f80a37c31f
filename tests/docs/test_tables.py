"""Tables and counts of the pages are those of the code and of proof/results."""

import re
import subprocess
import sys
from importlib import metadata

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.processes  # of their own: other tests add operators

PAGES = {
    "ops.md": ("torch", []),
    "ops-tensorflow.md": ("tensorflow", ["--tensorflow"]),
    "ops-onnx.md": ("onnx", ["--onnx"]),
}
TESTED = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))


def installed(package):
    """The version of a package; TensorFlow's build for CPUs has a name of its own."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return metadata.version(f"{package}-cpu")


@pytest.mark.parametrize("name", PAGES)
def test_operators(name):
    """`make ops` writes the tables: with the tested versions it would change none."""
    package, options = PAGES[name]
    pytest.importorskip(package)
    tested = TESTED.get(package) or TESTED[f"{package}-cpu"]
    if installed(package).partition("+")[0] != tested:
        pytest.skip(f"the table is of {package} {tested}, and {installed(package)} is installed")
    command = [sys.executable, "-m", "anyjax", "ops", *options, "--markdown"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / name).read_text(encoding="utf-8")


COUNT = re.compile(
    r"\b\d[\d,]* (?:of|/) (?:the )?\d[\d,]* (?:model )?(?:types|operators|functions)"
    r"|\b\d[\d,]* (?:more |torch )?(?:pipelines|tutorials)\b"
)
RATIO = re.compile(r"\b0\.\d+ of (?:its|the) (?:time|cycles)|\b\d[\d.]* times (?:as|faster|slower)")


def test_counts_come_from_the_results():
    """No page says by hand how many types or operators pass: docs/proof has that. Shares of a time
    are in benchmarks/README.md alone, with their commands.
    """
    written = [x for x in (ROOT / "docs").rglob("*.md") if x.parts[-2] != "proof"]
    written = [x for x in written if not x.name.startswith("ops")]  # which `make ops` writes
    written += [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    assert len(written) > 90
    lines = [(x.name, y) for x in written for y in x.read_text(encoding="utf-8").splitlines()]
    assert COUNT.search("of 276 types 12 of 276 model types pass")
    assert [x for x in lines if COUNT.search(x[1])] == []
    assert RATIO.search("takes 0.42 of the cycles") and RATIO.search("1.8 times as fast")
    pages = [x for x in written if x.parent.name != "benchmarks"]
    assert [x.name for x in pages if RATIO.search(x.read_text(encoding="utf-8"))] == []


def test_no_page_promises_a_release():
    """Until there is one, installing is from a clone; a message may name an extra to add."""
    install = re.compile(r"^\s*pip install [\"']?anyjax\b", re.M)
    for file in [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not install.search(file.read_text(encoding="utf-8")), file
