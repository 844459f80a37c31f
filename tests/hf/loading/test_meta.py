"""A checkpoint's model without its weights: shapes, operators, what implements them."""

import shutil

from anyjax.hf.loading.find.checkpoint import find_checkpoint
from anyjax.hf.loading.meta import operators, skeleton

DEMO = "examples/tiny-llama"


def test_a_folder_without_weights(tmp_path):
    shutil.copy(f"{DEMO}/config.json", tmp_path)
    module = skeleton(find_checkpoint(str(tmp_path), need_weights=False))
    assert {p.device.type for p in module.parameters()} == {"meta"}
    layers, calls = module.config.num_hidden_layers, operators(module)
    counts, implementations, missing = calls
    assert counts["aten.linear.default"] == 7 * layers + 1 and missing == []
    assert implementations["aten.linear.default"] == "a lowering in torch/ops/matmul.py"
    assert implementations.keys() == counts.keys()


def test_a_task_has_another_head():
    module = skeleton(find_checkpoint(DEMO), "SequenceClassification")
    assert module.score.weight.is_meta
