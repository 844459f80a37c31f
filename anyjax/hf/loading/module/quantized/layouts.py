"""How each tool lays out a quantized matrix; all of them keep (out, in)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.hf.loading.module.quantized.grid import Grid, fp8_bytes, unpacked_words
from anyjax.transforms.numbers import LOADED

Tensors = Mapping[str, torch.Tensor]
AWQ = [0, 4, 1, 5, 2, 6, 3, 7]  # the order of the numbers in a word


def gptq(t: Tensors, quantization: dict[str, Any]) -> Grid:
    """Reads AutoGPTQ's ``qweight`` int32 [in * bits / 32, out].

    Its first version stores zeros minus 1 (AutoGPTQ 0.7, nn_modules/qlinear/qlinear_cuda_old.py);
    gptq_v2 does not, see https://github.com/AutoGPTQ/AutoGPTQ/pull/640.
    """
    bits = quantization.get("bits", 4)
    numbers, zero = unpacked_words(t["qweight"].T, bits), unpacked_words(t["qzeros"], bits)
    if (quantization.get("checkpoint_format") or quantization.get("format")) != "gptq_v2":
        zero = (zero + 1) & ((1 << bits) - 1)
    scale, row = t["scales"].T, numbers.shape[1]
    size = quantization.get("group_size", 128)
    size = row if size is None or size < 0 else size
    groups, in_order = t.get("g_idx"), torch.arange(row) // size
    even = (groups is None or torch.equal(groups.long(), in_order)) and not row % size
    groups = None if even else (in_order if groups is None else groups.long())
    return Grid(f"uint{bits}", numbers, scale, zero.T, groups).centred()


def awq(t: Tensors, quantization: dict[str, Any]) -> Grid:
    """Reads AutoAWQ's gemm layout: ``qweight`` int32 [in, out / 8], eight neighbours reordered
    (autoawq 0.2, utils/packing_utils.py).
    """
    sort = lambda x: unpacked_words(x, 4).reshape(len(x), -1, 8)[:, :, AWQ].reshape(len(x), -1).T
    return Grid("uint4", sort(t["qweight"]), t["scales"].T, sort(t["qzeros"])).centred()


def packed(t: Tensors, quantization: dict[str, Any]) -> Grid:
    """Reads compressed-tensors' pack-quantized: ``weight_packed`` int32 [out, in * bits / 32],
    numbers and zeros plus half their range (compressors/pack_quantized/helpers.py).
    """
    rows, row = t["weight_shape"].tolist()
    bits = next(b for b in (4, 8) if -(-row * b // 32) == t["weight_packed"].shape[1])
    numbers = unpacked_words(t["weight_packed"], bits)[:, :row]
    scale = t["weight_scale"].reshape(rows, -1)
    if "weight_zero_point" in t:
        zero = unpacked_words(t["weight_zero_point"].T, bits)[:, :rows].T
    else:
        zero = torch.full(scale.shape, 1 << (bits - 1), dtype=torch.uint8)
    groups = t.get("weight_g_idx")
    groups = None if groups is None or int(groups.min()) < 0 else groups.long()
    return Grid(f"uint{bits}", numbers, scale, zero, groups).centred()


def int8_or_fp8(t: Tensors, quantization: dict[str, Any]) -> Grid:
    """Reads int8 or fp8 ``weight`` [out, in] with one scale, or one per row, group or block.

    They are compressed-tensors' ``weight_scale``, or ``weight_scale_inv`` of DeepSeek's fp8.
    """
    weight = t["weight"]
    if weight.dtype not in (torch.int8, torch.float8_e4m3fn):
        raise Unsupported(f"a quantized weight of {weight.dtype}", do="use int8 or float8_e4m3fn")
    scale = t["weight_scale_inv"] if "weight_scale_inv" in t else t["weight_scale"]
    scale = scale.reshape(1, -1) if scale.ndim < 2 else scale
    if len(scale) == 1 and scale.shape[1] == len(weight) > 1:
        scale = scale.T  # one for each row
    high, wide = _block(quantization)
    (rows, row), count = weight.shape, scale.shape[1]
    tall = high and len(scale) == -(-rows // high) != rows
    of_row = torch.arange(rows) // (high if tall else 1)
    spread = lambda x: x.expand(rows, -1) if len(x) == 1 else x[of_row]
    even = row % count == 0 and (not wide or count == 1 or wide * count == row)
    groups = None if even else torch.arange(row) // (wide or -(-row // count))
    if weight.dtype == torch.int8:
        zero = t.get("weight_zero_point")
        if zero is not None and bool(zero.any()):
            shifted = (weight.to(torch.int16) + 128).to(torch.uint8)
            null = spread((zero.reshape(len(zero), -1).to(torch.int16) + 128).to(torch.uint8))
            return Grid("uint8", shifted, spread(scale), null, groups)
        return Grid("int8", weight, spread(scale), None, groups)
    return Grid("fp8", fp8_bytes(weight, "weight"), spread(scale), None, groups)


def _block(quantization: dict[str, Any]) -> tuple[int, int]:
    """Returns the (rows, columns) of a block, 0 where the config names none."""
    if quantization["quant_method"] == "fp8":
        return tuple(quantization.get("weight_block_size", (128, 128)) or (0, 0))
    groups = [g.get("weights") or {} for g in (quantization.get("config_groups") or {}).values()]
    block = next((w["block_structure"] for w in groups if w.get("block_structure")), None)
    return tuple(block or (0, 0))


def bitsandbytes4(t: Tensors, quantization: dict[str, Any]) -> Grid:
    """Reads nf4 or fp4: two codes in a byte, the first in the high bits.

    There is a scale for each block of the matrix in row order; scales may be quantized, too
    (bitsandbytes, functional.py).
    """
    kind, state = state_of(t)
    flat = t["weight"].reshape(-1).view(torch.uint8)
    codes = torch.stack((flat >> 4, flat & 15), 1).reshape(-1)
    scale, (rows, row) = t["weight.absmax"], state["shape"]
    if "nested_blocksize" in state:
        outer = t["weight.nested_absmax"].repeat_interleave(state["nested_blocksize"])
        scale = t["weight.nested_quant_map"][scale.long()] * outer[: len(scale)]
        scale = scale + state["nested_offset"]
    codebook = torch.tensor(LOADED[kind].codes)
    if not torch.allclose(t["weight.quant_map"].float(), codebook, atol=1e-6):
        raise Unsupported(f"{kind} with codes of its own", do="load the original checkpoint")
    size = state["blocksize"]
    if row % size:  # a block goes on in the next row
        codes = codes[: rows * row]
        line = scale.repeat_interleave(size)[: rows * row].reshape(rows, row)
        return Grid(kind, codes.reshape(rows, row), line, None, torch.arange(row))
    return Grid(kind, codes[: rows * row].reshape(rows, row), scale.reshape(rows, -1))


def state_of(t: Tensors) -> tuple[str, dict[str, Any]]:
    """Returns (nf4 or fp4, the settings in the tensor that holds JSON)."""
    start = "weight.quant_state.bitsandbytes__"
    name = next(k for k in t if k.startswith(start))
    return name.removeprefix(start), json.loads(bytes(t[name].tolist()))


def bitsandbytes8(t: Tensors, quantization: dict[str, Any]) -> Grid:
    """Reads int8 ``weight`` [out, in] with ``SCB``, the largest absolute value of each row."""
    return Grid("int8", t["weight"], t["SCB"].float().reshape(-1, 1) / 127)


# (name of the tensor that identifies the layout, its reader, further tensors of a matrix)
LAYOUTS: list[tuple[str, Callable[[Tensors, dict[str, Any]], Grid], str]] = [
    ("qweight", gptq, "qzeros scales g_idx"),
    ("weight_packed", packed, "weight_scale weight_zero_point weight_shape weight_g_idx"),
    ("SCB", bitsandbytes8, "weight weight_format"),
    ("weight.absmax", bitsandbytes4, "weight"),
    ("weight_scale_inv", int8_or_fp8, "weight"),
    ("weight_scale", int8_or_fp8, "weight weight_zero_point"),
]
