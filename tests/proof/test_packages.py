"""Packages of other people: a module and functions of torch alone, rows, pages."""

import pytest
import torch

pytest.importorskip("psutil")

from anyjax.errors import DataDependent
from proof import cases, packages, packages_page, records
from proof.cases import Case, Example
from proof.comparison import NotApplicable, Wrong
from proof.package_checks import Checks

CHECKS = packages_page.CHECKS


class Net(torch.nn.Module):
    """A product, and what makes a check fail."""

    def __init__(self, detached=False):
        super().__init__()
        self.inner, self.detached = torch.nn.Linear(3, 2), detached

    def forward(self, x, ids):
        return self.inner(x).sin() + ids.unsqueeze(-1)


def pair(others):
    rows = 5 if others else 4
    return torch.randn(rows, 3), torch.randint(3, (rows,))


SIZES = {"x": "rows, _", "ids": "rows"}


def of(function, inputs=pair, wide=False, **options):
    return Checks(Case("torch", "net", lambda name: Example(function(), inputs, **options), wide))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("check", CHECKS)
def test_a_module_is_right(check, wide):
    assert getattr(of(Net, shapes=SIZES, wide=wide), check)() is None


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
def test_values_that_decide_sizes():
    """Only the check of jit says so: elsewhere the integers are known."""
    checks = of(lambda: lambda x, ids: x[: int(ids.sum())].sin())
    for check in ("value", "gradient", "vmap"):
        getattr(checks, check)()
    with pytest.raises(DataDependent):
        checks.jit()


def test_rows_that_values_choose_are_compared_by_what_counts():
    checks = of(lambda: lambda x, ids: x[ids > 0].sin())
    for check in ("value", "jit", "gradient"):
        getattr(checks, check)()


def test_what_is_wrong_is_told(monkeypatch):
    checks = of(Net, shapes=SIZES)
    right = checks.torch
    for name in ("torch", "_wide"):
        monkeypatch.setattr(checks, name, lambda *a: [x + 0.01 for x in right(*a)])
    for check in ("value", "jit", "save"):
        with pytest.raises(Wrong, match="array 0 differs"):
            getattr(checks, check)()


def test_a_gradient_that_is_wrong_is_told(monkeypatch):
    checks = of(Net)
    right = checks._torch_gradients

    def wrong(*args, **kwargs):
        slopes, places = right(*args, **kwargs)
        return {k: x * 1.1 for k, x in slopes.items()}, places

    monkeypatch.setattr(checks, "_torch_gradients", wrong)
    with pytest.raises(Wrong, match="argument 0 differs"):
        checks.gradient()


def test_what_says_nothing():
    integers = of(lambda: lambda ids: ids * 2, lambda others: (torch.randint(3, (4,)),))
    for check in ("gradient", "vmap"):
        with pytest.raises(NotApplicable):
            getattr(integers, check)()
    noise = of(lambda: lambda x, ids: x + torch.rand(4, 3), random=True)
    assert noise.value() is noise.jit() is noise.save() is None
    with pytest.raises(NotApplicable):
        noise.gradient()


def test_the_table():
    table = cases.table()
    assert len(table) > 200 and len({x.package for x in table.values()}) >= 24
    assert all(f"{x.package}/{x.name}" == key for key, x in table.items())
    listed = (records.ROOT / "proof" / "packages.txt").read_text()
    named = {x.package for x in table.values()}
    assert [name for name in sorted(named) if f"{name}==" not in listed] == []


def test_rows_of_a_run(tmp_path, monkeypatch):
    """Of a package that is not here, in a process of its own."""
    monkeypatch.setattr(packages, "MODULES", {})
    path = tmp_path / "packages.csv"
    name = "nflows/LU"
    packages.main(["--out", str(path), "--only", name])
    (row,) = records.read(path)
    assert (row["package"], row["case"], row["dtype"]) == ("nflows", "LU", "float32")
    assert {packages_page.kind(row[check]) for check in CHECKS} <= {"ok", "n/a"}
    assert name not in packages.chosen("nflows", False, path)
    assert [*packages.chosen(name, True, path)] == [name]
    assert "nflows/LUX" not in packages.chosen(name, True, path)
