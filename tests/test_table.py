"""The table's own rules; that every row fits torch's schema is what reading all of it checks."""

import functools
import importlib.util

import pytest
from jax import lax

from anyjax.errors import TableError, Unsupported
from anyjax.table import Param, Signature, Table, check


def toy():
    """A table of operators ``family.overload``; every operator takes ``x``, one also writes it."""

    def read(op):
        writes = ("x",) if op.endswith("_") else ()
        return Signature(op, (Param("x", "array"),), f"{op}(x)", writes=writes)

    family = lambda op: op.partition(".")[0]
    return Table("toy", read, lambda key: [key], family)


def one(x):
    return x + 1


def two(x):
    return x + 2


def other(y):
    return y


def test_a_lowering_with_other_names_is_refused():
    with pytest.raises(TableError, match=r"neg.a does not fit its schema[\s\S]*neg.a\(x\)"):
        toy().update({"neg.a": other})


def pair(op):
    """An operator of two arguments."""
    return Signature(op, (Param("x", "array"), Param("y", "array")), f"{op}(x, y)")


def either(a, b, /):
    return a + b


def scaled(a, b=1, /):
    return a * b


def half(a, /, y):
    return a + y


@functools.wraps(either)
def wrapped(*args):
    return either(*args)


def test_positional_only_parameters_are_counted():
    for function in (either, scaled, half, wrapped, lax.add, lambda *args: args):
        check(pair("add"), function)
    table = toy()
    table.update({"neg.a": scaled})
    assert table["neg.a"].lowering(2) == 2


@pytest.mark.parametrize("function", [either, half, wrapped, lax.add])
def test_another_number_of_arguments_is_refused(function):
    why = r"neg.a does not fit its schema[\s\S]*neg.a\(x\)[\s\S]*declare \(x\), not \("
    with pytest.raises(TableError, match=why):
        toy().update({"neg.a": function})


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a,  # other names
        lambda y, x: x,  # the schema's, in another order
        lambda x, /, z: x,  # only the first is free
        lambda a, b, c, /: a,
        lambda x, y, z=0: x,  # a name that the schema has not
        lambda x, y, *, z: x,
    ],
)
def test_names_are_checked_where_they_can_be_used(function):
    with pytest.raises(TableError, match=r"declare \(x, y\), not \("):
        check(pair("add"), function)


def test_an_operator_that_writes_is_refused():
    with pytest.raises(TableError, match="neg_ writes its argument 'x'"):
        toy().update({"inplace.neg_": one})


def test_a_deferred_row_is_checked_when_it_is_met():
    table = toy()
    with table.deferred():
        table.update({"neg.a": other, "abs.a": one})
    assert table.find("abs.a").lowering is one
    with pytest.raises(TableError, match=r"neg\.a"):
        table.find("neg.a")


@pytest.mark.parametrize("look", [len, list, lambda t: t.like("neg.a"), lambda t: t["abs.a"]])
def test_whoever_reads_the_table_reads_all_rows(look):
    table = toy()
    with table.deferred():
        table.update({"neg.a": other, "abs.a": one})
    with pytest.raises(TableError, match=r"neg\.a"):
        look(table)


def test_the_later_row_wins_however_it_is_added():
    table = toy()
    with table.deferred():
        table.update({"neg.a": one, "neg.b": one})
        table.update({"neg.b": two})
    table.update({"neg.a": two})
    assert [table.find(f"neg.{x}").lowering for x in "ab"] == [two, two]
    assert table.find("neg.c") is None


def newer(*added):
    """The table of a version whose ``add`` has more parameters than ``x`` and ``y``."""
    params = (Param("x", "array"), Param("y", "array"), *added)
    return Table("toy", lambda op: Signature(op, params, f"{op}(...)"), lambda key: [key])


@pytest.mark.parametrize("lowering", [lambda x, y: x + y, lambda a, b, /: a + b])
def test_a_parameter_that_only_a_newer_version_has_is_served_at_its_default(lowering):
    table = newer(Param("stable", "value", None), Param("scale", "value", 1.0))
    with table.deferred():
        table.update({"add": lowering})
    row = table["add"]
    assert [p.name for p in row.undeclared] == ["stable", "scale"]
    assert row.lowering(1, 2, None, 1.0) == 3
    for values in ((True, 1.0), (None, 1)):
        with pytest.raises(Unsupported, match=r"add with s\w+=[\s\S]*leave s\w+ out"):
            row.lowering(1, 2, *values)


def test_a_parameter_that_an_older_version_does_not_have_keeps_the_default_of_the_lowering():
    table = newer()
    with table.deferred():
        table.update({"add": lambda x, y, scale=2, /: (x + y) * scale})
    assert table["add"].lowering(1, 2) == 6


def test_undeclared_parameters_without_a_default_and_those_of_users_are_refused():
    table = newer(Param("axis", "value"))
    with table.deferred():
        table.update({"add": lambda x, y: x})
    with pytest.raises(TableError, match=r"declare \(x, y, axis\)"):
        table["add"]
    with pytest.raises(TableError, match=r"declare \(x, y, axis\)"):
        newer(Param("axis", "value", 0)).update({"add": lambda x, y: x})


def tables():
    for frontend in ("torch", "tensorflow", "stablehlo", "onnx"):
        if importlib.util.find_spec({"stablehlo": "jax"}.get(frontend, frontend)):
            importlib.import_module(f"anyjax.{frontend}")
            yield importlib.import_module(f"anyjax.{frontend}.core.schema").table


def test_every_row_fits_its_schema():
    counts = {table.name: len(table) for table in tables()}
    assert counts["stablehlo"] > 160
    assert counts.get("torch", 1000) > 700 and counts.get("tensorflow", 1000) > 400, counts
    assert counts.get("onnx", 1000) > 250


def test_no_row_leaves_a_parameter_undeclared():
    rows = (row for table in tables() for row in table.values())
    assert [row.signature.text for row in rows if row.undeclared] == []
