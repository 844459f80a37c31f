"""The ``quantization_config`` in a config.json, checked before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyjax.errors import Unsupported

COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
METHODS = ("gptq", "awq", "compressed-tensors", "bitsandbytes", "fp8")
# Keys that change what the weights mean, and are not read.
UNREAD = ("transform_config", "sparsity_config")


def quantization_of(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the quantization in a config or in that of its text model; {} for none.

    Example:
      >>> quantization_of({"quantization_config": {"load_in_4bit": True}})["quant_method"]
      'bitsandbytes'
    """
    inner = config.get("text_config") or {}
    names = "quantization_config", "compression_config"
    quantization = next((c[n] for c in (config, inner) for n in names if c.get(n)), None)
    if not quantization:
        return {}
    old = (
        "bitsandbytes" if "load_in_8bit" in quantization or "load_in_4bit" in quantization else "?"
    )
    return {"quant_method": old, **quantization}


def check_quantization(folder: Path, config: dict[str, Any]) -> None:
    """Raises Unsupported for weights that are quantized in a way that is not read."""
    quantization = quantization_of(config)
    if quantization and (problem := _problem(quantization)):
        raise Unsupported(
            f"the weights are quantized with {problem}",
            where=str(folder / "config.json"),
            why=f"what is read is {', '.join(METHODS)}: gptq of 4 and 8 bits, awq's gemm layout, "
            f"compressed-tensors as {', '.join(COMPRESSED)} of 4 and 8 bits",
            do="load the checkpoint that it was made from, or a GGUF file of the model",
        )


def _problem(quantization: dict[str, Any]) -> str:
    """Returns what cannot be read; "" where everything can."""
    method = quantization["quant_method"]
    if method not in METHODS:
        return str(method)
    bits = quantization.get("bits", 4)
    if method == "gptq":
        layout = quantization.get("checkpoint_format") or quantization.get("format") or "gptq"
        is_read = layout in ("gptq", "gptq_v2") and bits in (4, 8)
        return "" if is_read else f"gptq of {bits} bits in the format {layout!r}"
    if method == "awq":
        layout = str(quantization.get("version") or quantization.get("format") or "gemm").lower()
        return "" if layout == "gemm" and bits == 4 else f"awq of {bits} bits, version {layout!r}"
    if method == "fp8":
        form = quantization.get("scale_fmt", "float"), quantization.get("expert_dtype", "fp8")
        return "" if form == ("float", "fp8") else f"fp8 with scales and experts {form}"
    return _problem_of_groups(quantization) if method == "compressed-tensors" else ""


def _problem_of_groups(quantization: dict[str, Any]) -> str:
    unread = [k for k in UNREAD if quantization.get(k)]
    if (quantization.get("sparsity_config") or {}).get("format") == "dense":
        unread.remove("sparsity_config")
    if unread:
        return f"compressed-tensors and a {unread[0]}"
    for group in (quantization.get("config_groups") or {}).values():
        layout = group.get("format") or quantization.get("format")
        weights = group.get("weights") or {}
        if layout not in COMPRESSED or weights.get("num_bits", 8) not in (4, 8):
            return f"compressed-tensors as {layout}, {weights.get('num_bits')} bits"
    return ""
