"""A small Llama written in each tool's layout, number by number as the tool packs them: it gives
the logits of the float model with the same rounded weights.
"""

import json

import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import anyjax
from anyjax.errors import BadCheckpoint
from anyjax.transforms.numbers import LOADED
from anyjax.transforms.packed import Quantized
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

IDS = np.array([[5, 9, 2, 40], [7, 7, 1, 3]])
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 96}
ROUND = np.random.default_rng(0)


def module():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(num_hidden_layers=2, num_key_value_heads=2, **SIZES)
    return transformers.LlamaForCausalLM(config).eval()


def words(numbers, bits, axis):
    """int32 words along an axis, one number after the other."""
    numbers = np.moveaxis(numbers.astype(np.uint32), axis, -1)
    per = 32 // bits
    out = np.zeros((len(numbers), numbers.shape[1] // per), np.uint32)
    for i in range(numbers.shape[1]):
        out[:, i // per] |= numbers[:, i] << (bits * (i % per))
    return np.ascontiguousarray(np.moveaxis(out.view(np.int32), -1, axis))


def drawn(weight, bits, groups):
    """(numbers, scale, zero) with a scale and a zero for each group of columns."""
    rows, count = len(weight), int(groups.max()) + 1
    top = 2**bits
    zero = ROUND.integers(1, top - 1, (rows, count))
    scale = (np.abs(weight).max() / top * ROUND.uniform(1, 2, (rows, count))).astype(np.float16)
    numbers = np.round(weight / scale.astype(np.float32)[:, groups]) + zero[:, groups]
    return np.clip(numbers, 0, top - 1).astype(np.int64), scale, zero


def opened(numbers, scale, zero, groups):
    return (numbers - zero[:, groups]).astype(np.float32) * scale.astype(np.float32)[:, groups]


def gptq(weight, told):
    bits, size = told["bits"], told["group_size"]
    groups = np.arange(weight.shape[1]) // (size if size > 0 else weight.shape[1])
    if told.get("desc_act"):
        groups = ROUND.permutation(groups)
    numbers, scale, zero = drawn(weight, bits, groups)
    if told.get("sym"):
        zero[:] = 2 ** (bits - 1)
    less = 0 if told.get("checkpoint_format") == "gptq_v2" else 1
    parts = {
        "qweight": words(numbers, bits, 1).T,
        "qzeros": words((zero - less).T, bits, 1),
        "scales": scale.T,
        "g_idx": groups.astype(np.int32),
    }
    return parts, opened(numbers, scale, zero, groups)


def awq(weight, told):
    groups = np.arange(weight.shape[1]) // told["group_size"]
    numbers, scale, zero = drawn(weight, 4, groups)

    def mixed(x):  # columns of eight neighbours in AutoAWQ's order
        x = x.reshape(len(x), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return words(x.reshape(len(x), -1), 4, 1)

    parts = {"qweight": mixed(numbers.T), "qzeros": mixed(zero.T), "scales": scale.T}
    return parts, opened(numbers, scale, zero, groups)


def compressed(weight, told):
    given = told["config_groups"]["group_0"]["weights"]
    bits, rows, row = given["num_bits"], *weight.shape
    size = given.get("group_size") or row
    groups = np.arange(row) // size
    numbers, scale, zero = drawn(weight, bits, groups)
    if given["symmetric"]:
        zero[:] = 2 ** (bits - 1)
    want = opened(numbers, scale, zero, groups)
    parts = {"weight_scale": scale}
    if told["format"] == "pack-quantized":
        parts |= {"weight_packed": words(numbers, bits, 1), "weight_shape": np.array([rows, row])}
        if not given["symmetric"]:
            parts["weight_zero_point"] = words(zero, bits, 0)
    else:
        middle = 2 ** (bits - 1)
        parts["weight"] = (numbers - middle).astype(np.int8)
        if not given["symmetric"]:
            parts["weight_zero_point"] = (zero - middle).astype(np.int8)
    return parts, want


def fp8(weight, told):
    """Blocks of rows and columns; what is left at the edges is a block, too."""
    high, wide = told.get("weight_block_size") or weight.shape
    rows, columns = (np.arange(n) // b for n, b in zip(weight.shape, (high, wide)))
    scale = ROUND.uniform(1e-4, 2e-4, (rows.max() + 1, columns.max() + 1)).astype(np.float32)
    each = torch.from_numpy(scale[rows][:, columns])
    numbers = (torch.from_numpy(weight) / each).clamp(-448, 448).to(torch.float8_e4m3fn)
    name = "weight_scale_inv" if told["quant_method"] == "fp8" else "weight_scale"
    return {"weight": numbers, name: scale}, (numbers.float() * each).numpy()


def bitsandbytes(weight, told):
    if told.get("load_in_8bit"):
        largest = np.abs(weight).max(1)
        numbers = np.round(weight / largest[:, None] * 127).astype(np.int8)
        parts = {"weight": numbers, "SCB": largest, "weight_format": np.array(0, np.uint8)}
        return parts, numbers * (largest / 127)[:, None]
    kind, size = told["bnb_4bit_quant_type"], told["blocksize"]
    codes = np.array(LOADED[kind].codes, np.float32)
    numbers = ROUND.integers(0, 16, weight.size)
    absmax = ROUND.uniform(0.01, 0.02, -(-weight.size // size)).astype(np.float32)
    state = {"quant_type": kind, "blocksize": size, "dtype": "float32", "shape": weight.shape}
    parts = {"weight.quant_map": codes, "weight.absmax": absmax}
    if told.get("bnb_4bit_use_double_quant"):
        outer = np.linspace(-1, 1, 256, dtype=np.float32)
        inner = ROUND.integers(0, 256, absmax.size).astype(np.uint8)
        scales = ROUND.uniform(0.004, 0.005, -(-absmax.size // 256)).astype(np.float32)
        absmax = outer[inner] * scales[np.arange(inner.size) // 256] + np.float32(0.015)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.015}
        parts |= {"weight.absmax": inner, "weight.nested_absmax": scales}
        parts |= {"weight.nested_quant_map": outer}
    text = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
    parts[f"weight.quant_state.bitsandbytes__{kind}"] = text
    parts["weight"] = (numbers[::2] << 4 | numbers[1::2]).astype(np.uint8)[:, None]
    return parts, (codes[numbers] * absmax[np.arange(weight.size) // size]).reshape(weight.shape)


def group(form, **weights):
    given = {"num_bits": 8, "type": "int", "symmetric": True} | weights
    groups = {"group_0": {"targets": ["Linear"], "weights": given}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16}
BITS = {"quant_method": "bitsandbytes"}
FOUR = BITS | {"load_in_4bit": True, "blocksize": 32}
CASES = {
    "gptq": (gptq, GPTQ, "uint4"),
    "gptq of 8 bits": (gptq, GPTQ | {"bits": 8}, "uint8"),
    "gptq, symmetric": (gptq, GPTQ | {"sym": True}, "int4"),
    "gptq of 8 bits, symmetric": (gptq, GPTQ | {"sym": True, "bits": 8, "group_size": -1}, "int8"),
    "gptq v2": (gptq, GPTQ | {"checkpoint_format": "gptq_v2"}, "uint4"),
    "gptq, reordered": (gptq, GPTQ | {"desc_act": True}, ""),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, "uint4"),
    "packed int4": (compressed, group("pack-quantized", num_bits=4, group_size=32), "int4"),
    "packed int4 with zeros": (
        compressed,
        group("pack-quantized", num_bits=4, group_size=32, symmetric=False),
        "uint4",
    ),
    "packed int8 of rows": (compressed, group("pack-quantized"), "int8"),
    "int8 of rows": (compressed, group("int-quantized"), "int8"),
    "int8 with zeros": (compressed, group("naive-quantized", symmetric=False), "uint8"),
    "float of the whole": (fp8, group("float-quantized", type="float"), "fp8"),
    "fp8 in blocks": (fp8, {"quant_method": "fp8", "weight_block_size": [16, 32]}, "fp8"),
    "fp8 with edges": (fp8, {"quant_method": "fp8", "weight_block_size": [48, 40]}, ""),
    "nf4": (bitsandbytes, FOUR | {"bnb_4bit_quant_type": "nf4"}, "nf4"),
    "fp4, scales quantized": (
        bitsandbytes,
        FOUR | {"bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": True},
        "fp4",
    ),
    "nf4 across rows": (bitsandbytes, FOUR | {"bnb_4bit_quant_type": "nf4", "blocksize": 128}, ""),
    "int8 of bitsandbytes": (bitsandbytes, BITS | {"load_in_8bit": True}, "int8"),
}


SHORT = lambda t: t[:3].clone()
PARTS = {
    "has only g_idx, qweight, scales": ("gptq", {}, {"qzeros": None}),
    "scales of .* do not fit": ("gptq", {}, {"scales": SHORT}),
    "qzeros, scales of .* do not fit": ("gptq", {"group_size": 24}, {"g_idx": None}),
    "zeros .64, 3. for scales .64, 4.": ("gptq", {}, {"qzeros": SHORT}),
    "weight_scale_inv, weight of .* do not": ("fp8 in blocks", {"weight_block_size": [32, 32]}, {}),
    "stores more: 'weight.nested_absmax'": (
        "fp4, scales quantized",
        {},
        {"weight.nested_absmax": None},
    ),
}


@pytest.mark.parametrize("said", PARTS)
def test_parts_that_do_not_fit(said, tmp_path):
    """Missing or cut ones, and a config of another checkpoint: no number is made up."""
    case, more, parts = PARTS[said]
    pack, told, _ = CASES[case]
    with torch.no_grad():
        write(tmp_path, pack, told)
    tensors = load_file(tmp_path / "model.safetensors")
    for name, change in parts.items():
        name = f"model.layers.0.self_attn.q_proj.{name}"
        old = tensors.pop(name)
        tensors |= {} if change is None else {name: change(old)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] |= more
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint, match=said) as caught:
        anyjax.from_pretrained(tmp_path)
    assert len(str(caught.value).splitlines()) == 5


def write(folder, pack, told):
    """Writes the checkpoint; gives the float module with the rounded weights."""
    net = module()
    tensors = {}
    for name, x in net.state_dict().items():
        if not name.endswith("proj.weight") or "layers.1.mlp" in name:  # those are left out
            tensors[name] = x.clone()
            continue
        parts, rounded = pack(x.numpy(), told)
        x.copy_(torch.from_numpy(np.ascontiguousarray(rounded)))
        for part, values in parts.items():
            values = values if torch.is_tensor(values) else torch.from_numpy(np.array(values))
            tensors[f"{name.removesuffix('weight')}{part}"] = values.contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = net.config.to_dict() | {"quantization_config": told, "dtype": "float32"}
    config |= {"architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    return net


# One of each tool; the others are variants of these.
FAST = "gptq", "awq", "packed int4", "fp8 in blocks", "nf4"
MORE = [pytest.param(c, marks=pytest.mark.conformance) for c in CASES if c not in FAST]


@pytest.mark.parametrize("case", [*FAST, *MORE])
def test_logits_are_those_of_the_rounded_weights(case, tmp_path):
    pack, told, kind = CASES[case]
    with torch.no_grad():
        net = write(tmp_path, pack, told)
        want = net(torch.from_numpy(IDS)).logits
    floats = anyjax.from_pretrained(tmp_path, dequantize=True)
    assert_close(floats.params, {k: v.detach() for k, v in net.named_parameters()}, rtol=1e-6)
    kept = anyjax.from_pretrained(tmp_path, dequantize=False)
    assert_close([kept(IDS).logits], [want], reduction=512)
    one = jax.jit(lambda ids: kept.apply(kept.params, ids, state=kept.state).logits)
    assert_close([one(IDS[:1, :1])], [want[:1, :1]], reduction=512)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert isinstance(kept.source, Quantized) == bool(kind)
    assert (f"{name}.{kind}" in kept.state) == bool(kind)
    assert (name in kept.params) != bool(kind)
    assert "model.layers.1.mlp.up_proj.weight" in kept.params
    if case in FAST:
        text = anyjax.generate(kept, IDS, max_new_tokens=3, do_sample=False)
        np.testing.assert_array_equal(
            text, anyjax.generate(floats, IDS, max_new_tokens=3, do_sample=False)
        )
