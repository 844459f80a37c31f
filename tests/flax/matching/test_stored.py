import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import anyjax
from anyjax.errors import BadCheckpoint, WrongArguments
from anyjax.flax.matching.stored import as_numpy, read_weights


def test_bfloat16_stays_bfloat16():
    array = as_numpy(torch.tensor([1.0, 2.5], dtype=torch.bfloat16))
    assert array.dtype == ml_dtypes.bfloat16
    assert array.tolist() == [1.0, 2.5]


def test_a_folder_of_files(tmp_path):
    for i in range(2):
        save_file({f"x{i}": np.full(2, i, np.float32)}, tmp_path / f"model-{i}.safetensors")
    tensors = read_weights(tmp_path).tensors
    assert {name: t.read().tolist() for name, t in tensors.items()} == {"x0": [0, 0], "x1": [1, 1]}
    (tmp_path / "model-1.safetensors").write_bytes(b"short")
    with pytest.raises(BadCheckpoint, match="model-1"):
        read_weights(tmp_path)


def test_a_model_with_other_weights_is_only_arrays():
    module = torch.nn.Linear(3, 2)
    model = anyjax.from_torch(module)
    assert read_weights(model).module is module
    changed = model.with_params({k: v + 1 for k, v in model.params.items()})
    stored = read_weights(changed)
    assert stored.module is None
    np.testing.assert_array_equal(stored.tensors["bias"].read(), changed.params["bias"])


def test_parametrized_weights_are_computed():
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    tensors = read_weights(module).tensors
    assert set(tensors) == {"bias", "weight"}
    np.testing.assert_array_equal(tensors["weight"].read(), module.weight.detach().numpy())


@pytest.mark.parametrize("wrong", [3, {"x": "y"}, None])
def test_what_holds_no_weights(wrong):
    with pytest.raises(WrongArguments):
        read_weights(wrong)
