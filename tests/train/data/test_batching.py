import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongBatch
from anyjax.train.data import batching

SOURCE = anyjax.from_torch(torch.nn.ReLU()).source


def test_tensors_become_arrays():
    batch = batching.as_arrays(SOURCE, {"x": torch.ones(2, 3), "n": 2})
    assert batch["x"].shape == (2, 3) and batch["n"] == 2


def test_containers_of_others_are_registered():
    transformers = pytest.importorskip("transformers")
    encoded = transformers.BatchEncoding({"input_ids": np.ones((2, 3), np.int32)})
    kind = batching.check_batch(batching.as_arrays(SOURCE, encoded), None, 1)
    assert kind.dimensions == (2,)


def test_text_is_no_array():
    with pytest.raises(WrongBatch, match=r"batch\['text'\] holds no numbers: 'hello'"):
        batching.as_arrays(SOURCE, {"text": "hello"})
    with pytest.raises(WrongBatch, match="no numbers"):
        batching.as_arrays(SOURCE, {"text": np.array(["a", "b"])})


def test_parts_are_equal():
    with pytest.raises(WrongBatch, match=r"batch\['x'\] of shape \(5, 2\) cannot be cut into 2"):
        batching.check_batch({"x": np.ones((5, 2))}, None, 2)
