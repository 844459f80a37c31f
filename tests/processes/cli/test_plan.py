"""``anyjax plan`` in processes of its own."""

import pytest

from tests.processes.cli.test_cli import DEMO, anyjax

pytestmark = pytest.mark.processes


def test_help_teaches():
    code, out, _ = anyjax("plan", "--help")
    assert code == 0
    for word in ("--chips", "--train", "--decode", "--remat", "Example", "utilization"):
        assert word in out


@pytest.mark.conformance
def test_the_demo(tmp_path):
    """Compiled for eight virtual devices, which this process does not have."""
    page = tmp_path / "plan.html"
    asked = ("--chips", "cpu-8", "--batch", "8", "--length", "64", "--html", str(page))
    code, out, err = anyjax("plan", DEMO, *asked)
    assert code == 0, err
    for word in ("peak per device", "compiled peak", "all-reduce (model)", "tokens/s"):
        assert word in out
    assert "peak per device" in page.read_text()


def test_a_mistake_in_a_process_of_its_own():
    code, out, err = anyjax("plan", DEMO, "--chips", "v9-8")
    assert code == 1 and out == ""
    assert "there is no chip 'v9-8'" in err and len(err.strip().splitlines()) == 5
