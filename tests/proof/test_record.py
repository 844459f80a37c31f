"""``--record``: outcomes of conformance tests as rows by operator, with the runs beside them."""

import types

import pytest

from proof import records
from tests.conformance.record import Case, Recorder, case_of, modes, totals

FILE = "tests/conformance/test_op_db.py::test_entry"
KERAS = "tests/conformance/test_keras_set.py::test_as_keras_has_it"


def report(nodeid, outcome="passed", when="call", reason="", **properties):
    skipped = outcome in ("skipped", "expected")
    found = types.SimpleNamespace(
        nodeid=nodeid, when=when, passed=outcome == "passed", skipped=skipped,
        failed=outcome == "failed", user_properties=[*properties.items()],
        longrepr=("file", 1, f"Skipped: {reason}") if outcome == "skipped" else None,
    )  # fmt: skip
    if outcome == "expected":
        found.wasxfail = reason
    return found


def test_cases_by_their_ids():
    suite = "torch's operator database"
    assert case_of(f"{FILE}[values-float64-x64-add]") == Case(suite, "values float64 x64", "add")
    assert case_of(f"{FILE}[grad-float32-nn.relu-6]") == Case(suite, "grad float32", "nn.relu-6")
    assert case_of(f"{KERAS}[Dense]") == Case("Keras layers", "", "Dense")
    assert case_of("tests/test_model.py::test_x[1]") is None
    assert case_of(f"{KERAS.replace('test_as', 'test_other')}[Dense]") is None


def test_modes_of_one_test():
    found = modes({"value": "", "grad": "off", "vmap": "no"}, {"grad": "known"})
    assert found == {
        "value": ("passed", ""), "grad": ("expected", "known"), "vmap": ("failed", "no"),
    }  # fmt: skip


def test_rows_and_runs(tmp_path):
    path = tmp_path / "torch.csv"
    ids = [f"{FILE}[values-float32-{x}]" for x in ("add", "chalf", "item")]
    recorder = Recorder(path)
    recorder.add_totals(totals([*ids, f"{FILE}[values-float32-sub]"]))
    for each in (
        report(ids[0], when="setup"), report(ids[0]), report(ids[0], when="teardown"),
        report(ids[1], "expected", reason="no such dtype"),
        report(ids[2], "skipped", reason="torch itself cannot"),
        report(f"{KERAS}[Dense]", modes={"value": ["passed", ""], "grad": ["failed", "off"]}),
    ):  # fmt: skip
        recorder.pytest_runtest_logreport(each)
    recorder.pytest_sessionfinish()
    rows = {(x["name"], x["mode"]): x for x in records.read(path)}
    assert rows["add", "values float32"]["passed"] == "1"
    assert rows["chalf", "values float32"]["expected"] == "1"
    assert rows["chalf", "values float32"]["reasons"] == "no such dtype"
    assert rows["item", "values float32"]["skipped"] == "1"
    assert rows["Dense", "grad"]["failed"] == "1" and rows["Dense", "grad"]["reasons"] == "off"
    keras, torch = records.read(tmp_path / "runs.csv")
    assert (torch["cases"], torch["total"], torch["expected"]) == ("3", "4", "1")
    assert (keras["cases"], keras["passed"], keras["failed"]) == ("1", "1", "1")
    assert "python -m pytest" in torch["command"]


def test_a_second_run_replaces_the_rows_of_its_modes_alone(tmp_path):
    path = tmp_path / "torch.csv"
    for mode, name in (("values", "add"), ("grad", "add"), ("values", "sub")):
        recorder = Recorder(path)
        recorder.add(report(f"{FILE}[{mode}-float32-{name}]"))
        recorder.pytest_sessionfinish()
    assert {(x["mode"], x["name"]) for x in records.read(path)} == {
        ("grad float32", "add"), ("values float32", "sub"),
    }  # fmt: skip


@pytest.mark.processes
def test_a_run_of_pytest(tmp_path, request):
    """With two workers, each of which collects all cases."""
    import subprocess
    import sys

    path = tmp_path / "torch.csv"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    command += ["-k", "eval-nn.ReLU or eval-nn.Linear", "--record", path]
    run = subprocess.run(
        [*command, "tests/conformance/test_module_db.py", "-m", "conformance or not conformance"],
        cwd=request.config.rootpath, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    rows = {x["name"]: x for x in records.read(path)}
    assert {"nn.ReLU", "nn.Linear"} <= {*rows} and rows["nn.ReLU"]["passed"] == "1"
    (torch,) = records.read(tmp_path / "runs.csv")
    assert int(torch["cases"]) == len(rows) < int(torch["total"])


def test_a_record_of_more_cases_stays(tmp_path, capsys):
    path = tmp_path / "torch.csv"
    for names in ("values-float32-add values-float32-sub", "values-float32-mul grad-float32-mul"):
        recorder = Recorder(path)
        for name in names.split():
            recorder.add(report(f"{FILE}[{name}]"))
        recorder.pytest_sessionfinish()
    rows = [(x["name"], x["mode"]) for x in records.read(path)]
    recorded = [("add", "values float32"), ("mul", "grad float32"), ("sub", "values float32")]
    assert rows == recorded
    assert "not recorded: 1 cases of torch's operator database" in capsys.readouterr().out
