"""Parts that belong together become one matrix; a part too few is an error."""

import pytest
import torch
from safetensors.torch import save_file

from anyjax.errors import BadCheckpoint
from anyjax.hf.loading.find.checkpoint import stored_in
from anyjax.hf.loading.module.deferred import Reader, read_all
from anyjax.hf.loading.module.quantized.tensors import matrices

TOLD = {"quant_method": "fp8", "weight_block_size": [2, 2]}


def read(folder, tensors, module=None):
    save_file(tensors, folder / "x.safetensors")
    module = torch.nn.Module() if module is None else module
    reader = Reader()
    found = matrices(stored_in(folder / "x.safetensors"), TOLD, reader, module)
    values = {name: read_all(tensor) for name, tensor in found.items()}
    reader.close()
    return values


def test_scales_of_activations_are_left_out(tmp_path):
    eight = torch.ones(4, 4).to(torch.float8_e4m3fn)
    scale, one = torch.full((2, 2), 3.0), torch.ones(1)
    given = {"a.weight": eight, "a.weight_scale_inv": scale, "a.activation_scale": one}
    found = read(tmp_path, given | {"a.bias": one.clone(), "b.weight": one.clone()})
    assert sorted(found) == ["a.bias", "a.weight", "b.weight"]
    torch.testing.assert_close(found["a.weight"], torch.full((4, 4), 3.0))


def test_numbers_without_scales(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"1 quantized weights have no scales: a\.weight"):
        read(tmp_path, {"a.weight": torch.ones(4, 4).to(torch.float8_e4m3fn)})
    with pytest.raises(BadCheckpoint, match=r"b\.weight has only weight_scale_inv"):
        read(tmp_path, {"b.weight_scale_inv": torch.ones(2, 2)})
