"""The config.json of a checkpoint, and the quantization in it, checked before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anyjax.errors import BadCheckpoint, Unsupported

MANY_LABELS = 10**6  # transformers names each of them: some 200 MB
SIZES = {"hidden_size", "intermediate_size", "vocab_size"}
SIZES |= {f"num_{x}" for x in ("attention_heads", "hidden_layers", "key_value_heads")}
COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
METHODS = ("gptq", "awq", "compressed-tensors", "bitsandbytes", "fp8")
# Keys that change what the weights mean, and are not read.
UNREAD = ("transform_config", "sparsity_config")


def check_config(config: Any, file: Path) -> None:
    """Raises BadCheckpoint for a config.json that says what no model is."""
    if not isinstance(config, dict) or not config.get("model_type"):
        raise BadCheckpoint(
            "config.json names no model_type",
            where=str(file),
            why="without it nobody knows which architecture this is",
            do="use a checkpoint in the Hugging Face format (not a training framework's own)",
        )
    numbers = [(path, k, v) for path, k, v in entries(config) if type(v) is int]
    wrong = {
        "model_type is a name, architectures are names, parts of a config are objects": [
            f"{k} = {v!r}"[:80] for k, v in config.items() if not _is_typed(k, v)
        ],
        # some configs write -1 for none
        "a size or a number of parts is 1 at least": [
            f"{path} = {v}" for path, k, v in numbers
            if v < (0 if k in SIZES else -1) and _is_size(k)
        ],
        f"labels are named one by one: {MANY_LABELS} at most are read": [
            f"{path} = {v}"[:80] for path, k, v in numbers if k == "num_labels" and v > MANY_LABELS
        ],
    }  # fmt: skip
    for why, problems in wrong.items():
        if problems:
            what = f"config.json says {', '.join(problems[:4])}"
            do = "restore the file, or correct it"
            raise BadCheckpoint(what, where=str(file), why=why, do=do)


def entries(config: dict[str, Any], place: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yields (path, name, value) of what a config and those nested in it say."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from entries(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", name, value


def _is_typed(name: str, value: object) -> bool:
    """Returns whether an entry of a config has the type that transformers expects."""
    if name == "architectures":
        return value is None or (isinstance(value, list) and all(type(x) is str for x in value))
    if name == "model_type":
        return isinstance(value, (str, int))  # a number is an unknown type
    is_object = name == "auto_map" or name.endswith("_config")
    return not is_object or value is None or isinstance(value, dict)


def _is_size(name: str) -> bool:
    return name in SIZES or name.endswith(("_size", "_dim")) or name.startswith("num_")


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


def check_quantization(quantization: dict[str, Any], file: Path) -> None:
    """Raises Unsupported for weights that are quantized in a way that is not read."""
    if quantization and (problem := _problem(quantization)):
        raise Unsupported(
            f"the weights are quantized with {problem}",
            where=str(file),
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
