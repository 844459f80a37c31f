"""When values are read for the last time."""

from tojax.stablehlo.core.region import Operation, Region


def test_last_uses():
    one = Operation("a", [("value", 0)], [1], [])
    other = Operation("b", [("values", [1, 0])], [2], [])
    region = Region([0], [], [one, other], [2])
    region.mark_last_uses()
    assert (one.last_use, other.last_use) == ([], [1])
