"""Blocks of GGUF files: opened they are what the gguf package opens them to, bit for bit."""

import numpy as np
import pytest
import torch

from anyjax.hf.loading.module.quantized.gguf_blocks import KINDS, grid_of, packed_matrices, rows_in
from anyjax.torch.core import interop
from anyjax.transforms.packed import Packed

pytestmark = pytest.mark.sample(every=2)

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")


def stored(kind, rows=6, blocks=3):
    """Random bytes with scales that are numbers."""
    which = getattr(gguf.GGMLQuantizationType, kind)
    data = np.random.default_rng(0).integers(0, 256, (rows, blocks, KINDS[kind][1]), np.uint8)
    place = 208 if kind == "Q6_K" else 0
    scale = np.random.default_rng(1).standard_normal((rows, blocks)).astype(np.float16)
    data[..., place : place + 2] = scale[..., None].view(np.uint8)
    return which, data.reshape(rows, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_opened(kind):
    which, data = stored(kind)
    want, grid = gguf.dequantize(data, which), grid_of(kind, data)
    np.testing.assert_array_equal(grid.dense().numpy().view(np.uint32), want.view(np.uint32))
    form = Packed("w", grid.scheme, grid.block, want.shape, np.dtype("float32"))
    state = dict(zip(form.parts, map(interop.to_jax, grid.packed())))
    np.testing.assert_array_equal(np.asarray(form(state)).view(np.uint32), want.view(np.uint32))
    assert sum(x.nbytes for x in state.values()) < 0.35 * want.nbytes


def test_others_are_opened():
    assert grid_of("Q4_1", np.zeros((2, 20), np.uint8)) is None
    assert grid_of("Q8_0", np.zeros((2, 2, 34), np.uint8)) is None


def write(file, arrays):
    writer = gguf.GGUFWriter(file, "llama")
    for name, (which, data) in arrays.items():
        writer.add_tensor(name, data, raw_dtype=which)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_what_stays_packed(tmp_path):
    """Rows in another order do; what was added to or transposed does not."""
    which, data = stored("Q8_0", rows=96)
    write(tmp_path / "x.gguf", {"a": (which, data)})
    dense = torch.from_numpy(gguf.dequantize(data, which))
    turned = dense.flip(0)
    found = packed_matrices(
        gguf.GGUFReader(tmp_path / "x.gguf").tensors,
        {"a": turned, "b": dense.T, "c": dense + 1, "d": dense[:32]},
    )
    assert [k for k, v in found.items() if getattr(v, "grid", None)] == ["a"]
    torch.testing.assert_close(found["a"].read(), turned, rtol=0, atol=0)
    assert found["b"].shape == (96, 96) and rows_in(dense, dense.T) is None
