"""The sample that `make test` runs, in a small folder of its own."""

import json

import pytest

from tests import sampling

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
SLOW = (
    FILE
    + """
import time

def test_slow():
    time.sleep(1.1)
"""
)


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


def test_as_many_runs_as_it_takes_see_every_case(run, monkeypatch, tmp_path):
    (tmp_path / "seconds.json").write_text('{"test_x.py": 6.5}')
    monkeypatch.setattr(sampling, "SECONDS", tmp_path / "seconds.json")
    of_run = lambda offset: run("-m", "not conformance", "-n0", "--budget", "2", "--offset", offset)
    runs = [of_run(str(offset)) for offset in range(4)]
    cases = [case for found, _ in runs for case in found]
    assert sorted(cases) == LEFT and all(1 <= len(found) <= 2 for found, _ in runs)
    assert "--offset 3 runs these again" in runs[3][1][0]


def test_seconds_of_files_are_recorded(pytester, run, monkeypatch, tmp_path):
    monkeypatch.setattr(sampling, "SECONDS", tmp_path / "seconds.json")
    pytester.makepyfile(test_y=SLOW)
    run("-n0", "--record-seconds")
    assert json.loads((tmp_path / "seconds.json").read_text()) == {"test_y.py": 1}
