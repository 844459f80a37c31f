"""Names of slices, and rates."""

import pytest

from anyjax.chips.figures import CHIPS, slice_of
from anyjax.errors import WrongArguments

pytestmark = pytest.mark.sample(every=2)


def test_names():
    assert slice_of("v6e-8") == (CHIPS["v6e"], 8)
    assert slice_of("Ironwood-64") == (CHIPS["v7x"], 64)
    assert slice_of("a100-40-16") == (CHIPS["a100-40"], 16)


@pytest.mark.parametrize("name", ["v6e", "v6e-0", "v6-8", "8", ""])
def test_others_are_refused(name):
    with pytest.raises(WrongArguments) as error:
        slice_of(name)
    assert len(str(error.value).splitlines()) == 5


def test_rates():
    h100 = CHIPS["h100"]
    assert h100.rate("float16") == h100.rate("bfloat16") > h100.rate("float32")
    assert CHIPS["v6e"].rate("float32") == CHIPS["v6e"].rate("bfloat16")
    assert CHIPS["v7x"].rate("int8") == CHIPS["v7x"].rate("bfloat16")


def gigabytes(name, axes, **mesh):
    return CHIPS[name].reach(axes.split(), mesh) / 1e9


def test_the_network_between_nodes():
    """Eight GPUs have NVLink; a group has the network cards of its own chips in each node."""
    assert gigabytes("h100", "model", data=2, model=8) == 450
    assert gigabytes("h100", "data", data=2, model=8) == 50
    assert gigabytes("h100", "data", data=4, model=4) == 100
    assert gigabytes("h100", "data", data=64) == gigabytes("h100", "data model", data=8, model=8)
    assert gigabytes("h100", "data", data=64) == 400
    assert gigabytes("h100", "model", model=16, data=1) == 400
    assert gigabytes("v5e", "data", data=2, model=256) == 3.125


def test_links_of_a_torus():
    sizes = 2, 4, 8, 64, 256
    assert [gigabytes("v5e", "data", data=n) / 50 for n in sizes] == [1, 2, 2, 2, 4]
    assert [gigabytes("v5p", "data", data=n) / 100 for n in sizes] == [1, 2, 3, 6, 6]
    assert gigabytes("v5e", "data", data=512) == 200
