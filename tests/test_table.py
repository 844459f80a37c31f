"""The table's own rules; that every row fits torch's schema is what reading all of it checks."""

import functools

import pytest
from jax import lax

from tojax.errors import TableError
from tojax.table import Param, Signature, Table, check


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


def test_every_row_of_torch_fits_its_schema():
    import tojax.torch  # noqa: F401  (fills the table)
    from tojax.torch.core.schema import table

    assert len(table) > 700
