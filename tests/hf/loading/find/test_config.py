"""Schemes that are not read: one error, before any weight is looked at."""

import json

import pytest

import anyjax
from anyjax.errors import Unsupported

pytestmark = pytest.mark.sample(every=2)

PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


def group(bits):
    return {"config_groups": {"group_0": {"weights": {"num_bits": bits}}}}


@pytest.mark.parametrize(
    "told, says",
    [
        ({"quant_method": "torchao"}, "torchao"),
        ({"bits": 4}, r"\?"),
        ({"quant_method": "gptq", "bits": 3}, "gptq of 3 bits in the format 'gptq'"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "'marlin'"),
        ({"quant_method": "awq", "version": "GEMV"}, "awq of 4 bits, version 'gemv'"),
        ({"quant_method": "fp8", "scale_fmt": "ue8m0"}, "fp8 with scales"),
        (PACKED | group(3), "pack-quantized, 3 bits"),
        (PACKED | group(4) | {"format": "nvfp4-pack-quantized"}, "nvfp4"),
        (PACKED | group(4) | {"transform_config": {"R1": {}}}, "a transform_config"),
        (PACKED | group(4) | {"sparsity_config": {"format": "marlin-24"}}, "a sparsity_config"),
    ],
)
def test_unknown_schemes(told, says, tmp_path):
    config = {"model_type": "llama", "quantization_config": told}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Unsupported, match=f"quantized with .*{says}") as caught:
        anyjax.from_pretrained(tmp_path)
    said = str(caught.value).splitlines()
    assert len(said) == 5
    assert "gptq, awq, compressed-tensors, bitsandbytes, fp8" in said[2]
