"""When values are read for the last time."""

from anyjax.stablehlo.core.region import Operation, Region


def test_last_uses():
    first = Operation("a", [("value", 0)], [1], [])
    second = Operation("b", [("values", [1, 0])], [2], [])
    region = Region([0], [], [first, second], [2])
    region.mark_last_uses()
    assert (first.last_use, second.last_use) == ([], [1])
