"""The table's own rules; that every row fits torch's schema is what reading all of it checks."""

import pytest

from tojax.errors import TableError
from tojax.table import Param, Signature, Table


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
    from tojax.torch.schema import table

    assert len(table) > 700
