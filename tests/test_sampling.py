"""The sample that `make test` runs, in a small folder of its own."""

import pytest

pytest_plugins = ["pytester"]

FILE = """
import pytest
from tests.sampling import further

pytestmark = pytest.mark.sample(every=3)

@pytest.mark.parametrize("x", range(8))
def test_file(x): ...

@pytest.mark.sample(every=2)
@pytest.mark.parametrize("x", [0, *further(1, 2), 3, 4])
def test_own(x): ...

def test_plain(): ...
"""


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nmarkers =\n  sample\n  conformance\n")
    pytester.makepyfile(test_x=FILE)

    def run(*options):
        arguments = ("-p", "xdist", "-p", "tests.sampling", "-v", *options)
        lines = pytester.runpytest_inprocess(*arguments).outlines
        cases = [x.split("::")[1].split()[0] for x in lines if "PASSED" in x]
        return cases, [x for x in lines if "make conformance" in x]

    return run


LEFT = ["test_file[0]", "test_file[3]", "test_file[6]", "test_own[0]", "test_own[4]", "test_plain"]
SUMMARY = ["6 of 14 cases were to run; `make conformance` runs all of them"]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_the_first_and_every_nth_case_run(run, workers):
    cases, summary = run("-m", "not conformance", "-n", str(workers))
    assert summary == SUMMARY
    assert sorted(cases) == LEFT


def test_all_run_without_a_selection(run):
    cases, summary = run("-n0")
    assert len(cases) == 14 and not summary


def test_every_takes_a_part_of_the_sample(run):
    assert run("-m", "not conformance", "-n0", "--every", "4")[0] == [LEFT[0], LEFT[4]]
