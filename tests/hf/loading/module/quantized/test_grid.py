"""Matrices of small numbers: floats and packed parts say the same."""

import numpy as np
import pytest
import torch

from anyjax.errors import BadCheckpoint
from anyjax.hf.loading.module.quantized.grid import Grid, fp8_bytes, unpacked_words
from anyjax.torch.core import interop
from anyjax.transforms.numbers import LOADED
from anyjax.transforms.packed import Packed

pytestmark = pytest.mark.sample(every=2)


@pytest.mark.parametrize("scheme", LOADED)
def test_packed_parts_open_to_the_same_floats(scheme):
    kind, draw = LOADED[scheme], torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 2**kind.bits - 1, (6, 32), dtype=torch.uint8, generator=draw)
    numbers = numbers.view(torch.int8) if scheme == "int8" else numbers & 0x77
    scale = torch.rand(6, 4, generator=draw)
    zero = torch.randint(0, 2**kind.bits, (6, 4), dtype=torch.uint8) if kind.zero else None
    grid = Grid(scheme, numbers, scale, zero)
    form = Packed("w", scheme, grid.block, (6, 32), np.dtype("float32"))
    state = dict(zip(form.parts, map(interop.to_jax, grid.packed())))
    np.testing.assert_allclose(form(state), grid.dense(), rtol=1e-6, atol=1e-9)


def test_zeros_in_the_middle_are_none():
    numbers, middle = torch.arange(16, dtype=torch.uint8)[None], torch.full((1, 2), 8)
    grid = Grid("uint4", numbers, torch.ones(1, 2), middle.to(torch.uint8))
    assert grid.centred().scheme == "int4"
    torch.testing.assert_close(grid.centred().dense(), grid.dense())
    other = grid._replace(zero=torch.tensor([[8, 7]], dtype=torch.uint8))
    assert other.centred() is other


def test_words_and_fp8_bytes():
    assert unpacked_words(torch.tensor([[-1, 0x76543210]], dtype=torch.int32), 4)[0].tolist() == [
        15
    ] * 8 + [*range(8)]
    with pytest.raises(BadCheckpoint, match=r"here\.weight holds a NaN"):
        fp8_bytes(torch.tensor([[float("nan")]]).to(torch.float8_e4m3fn), "here.weight")
