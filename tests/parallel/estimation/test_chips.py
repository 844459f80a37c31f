"""Names of slices, and rates."""

import pytest

from tojax.errors import WrongArguments
from tojax.parallel.estimation.chips import CHIPS, slice_of


def test_names():
    assert slice_of("v6e-8") == (CHIPS["v6e"], 8)
    assert slice_of("Ironwood-64") == (CHIPS["v7x"], 64)
    assert slice_of("a100-40-16") == (CHIPS["a100-40"], 16)


@pytest.mark.parametrize("name", ["v6e", "v6e-0", "v6-8", "8", ""])
def test_others_are_refused(name):
    with pytest.raises(WrongArguments) as error:
        slice_of(name)
    assert len(str(error.value).splitlines()) == 4


def test_rates():
    h100 = CHIPS["h100"]
    assert h100.rate("float16") == h100.rate("bfloat16") > h100.rate("float32")
    assert CHIPS["v6e"].rate("float32") == CHIPS["v6e"].rate("bfloat16")
    assert h100.ring(8) == 450e9 and h100.ring(16) == h100.beyond
    assert CHIPS["v5e"].ring(8) == 2 * CHIPS["v5e"].ring(2)
