"""Chips that are not here: names, sizes of slices, and what is said without a compiler."""

import importlib.util

import jax
import pytest

from anyjax.chips.devices import (
    GPUS,
    NO_TILES,
    TPUS,
    compile_lowered,
    devices_of,
    platform_of,
    slice_sizes,
)
from anyjax.chips.figures import CHIPS
from anyjax.errors import MissingDependency, WrongArguments

WITHOUT = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is not None, reason="the compiler is here"
)


def test_names_are_those_of_the_figures():
    assert {*TPUS, *GPUS} <= {*CHIPS}
    assert {*CHIPS} - {*TPUS, *GPUS} == {"cpu", "mi300x"}
    assert [platform_of(x) for x in ("v6e", "h100", "cpu")] == ["tpu", "cuda", None]


@pytest.mark.parametrize("power", range(13))
def test_sides_are_powers_that_make_the_slice(power):
    for torus in (2, 3):
        sides = slice_sizes(1 << power, torus)
        assert len(sides) == torus
        product = 1
        for n in sides:
            assert n & (n - 1) == 0
            product *= n
        assert product == 1 << power
        assert max(sides) <= 4 * min(sides)


def test_memories_are_near_the_published_ones():
    for name, gpu in GPUS.items():
        assert 0.97 < gpu.memory / CHIPS[name].memory < 1.08, name
        assert 0.95 < gpu.bandwidth / CHIPS[name].bandwidth < 1.05, name
        assert f'device_description_str: "{gpu.kind}"' in gpu.described()


@WITHOUT
@pytest.mark.parametrize("chips, extra", [("v6e-8", "tpu"), ("h100-1", "cuda")])
def test_without_the_compiler(chips, extra):
    with pytest.raises(MissingDependency, match=rf"anyjax\[{extra}\]"):
        devices_of(chips)


@pytest.mark.parametrize("chips", ["cpu-4", "mi300x-2", "v6-8"])
def test_no_compiler_knows_them(chips):
    with pytest.raises(WrongArguments):
        devices_of(chips)


class Gpu:
    platform = "gpu"


class Lowered:
    """Compiles with these options alone."""

    def __init__(self, message: str, **needed):
        self.message, self.needed = message, needed

    def compile(self, options):
        if not self.needed.items() <= options.items():
            raise jax.errors.JaxRuntimeError(self.message)
        return options


def test_products_that_no_tile_fits_are_not_fused():
    compiled = lambda lowered: compile_lowered(lowered, Gpu(), {"a": 1})
    assert compiled(Lowered("")) == {"xla_gpu_autotune_level": 0, "a": 1}
    off = {"xla_gpu_enable_triton_gemm": False}
    assert off.items() <= compiled(Lowered(f"INTERNAL: {NO_TILES} that", **off)).items()
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        compiled(Lowered("RESOURCE_EXHAUSTED: why", **off))
