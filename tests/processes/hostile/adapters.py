"""Mutants of adapters and of GGUF files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.processes.hostile import mutators as m
from tests.processes.hostile.checkpoints import DEEP, VALUES, numbered, of_bytes
from tests.processes.hostile.mutators import Mutant

# Adapters


ADAPTER_FIELDS = [
    "peft_type", "r", "lora_alpha", "target_modules", "modules_to_save",
    "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "use_dora",
    "bias", "init_lora_weights", "fan_in_fan_out", "task_type", "layer_replication",
    "base_model_name_or_path", "auto_mapping",
]  # fmt: skip


def adapter(format: str) -> Iterator[Mutant]:
    """Yields changes of an adapter's files."""
    file = "adapter_config.json"
    values = dict(VALUES)
    for name in ("half", "parent", "nested", "big"):
        del values[name]
    for field in ADAPTER_FIELDS:
        for name, value in values.items():
            yield Mutant(f"{format}-{field}-{name}", format, m.put(file, field, value))
    special = {
        "megatron": {"megatron_config": {"x": 1}, "megatron_core": "anyjax_payload"},
        "replication": {"layer_replication": [[0, 2]] * 2000},
        "rank": {"rank_pattern": {"q_proj": 10**8}},
        "corda": {"init_lora_weights": "corda", "corda_config": {"cache_file": "/etc/passwd"}},
        "eva": {"init_lora_weights": "eva", "eva_config": {"rho": 10**9}},
        "pissa": {"init_lora_weights": "pissa"}, "vera": {"peft_type": "VERA", "r": 10**9},
        "xlora": {"peft_type": "XLORA", "adapters": {"0": "/etc"}, "hidden_size": 16},
        "trainable": {"trainable_token_indices": [10**9]},
        "parameters": {"target_parameters": ["x.y"]},
        "mapping": {"auto_mapping": {"base_model_class": "X", "parent_library": "anyjax_payload"}},
        "quantized": {"use_qalora": True},
        "runtime": {"runtime_config": {"ephemeral_gpu_offload": 1}},
        "millions": {"r": 3 * 10**7}, "thousands": {"r": 10**6},
    }  # fmt: skip
    for name, entries in special.items():
        change = m.edit(file, lambda old, folder, entries=entries: old | entries)
        yield Mutant(f"{format}-special-{name}", format, change)
    weights = "*.safetensors"
    yield from of_bytes(format, 12, 6, file)
    yield from of_bytes(format, 20, 6, weights)
    for instead in ("nothing", "folder", "pipe", "loop", "dangling", "zero"):
        yield Mutant(f"{format}-weights-{instead}", format, m.lose(weights, instead), True)
        yield Mutant(f"{format}-config-{instead}", format, m.lose(file, instead), True)
    for torch in (False, True):
        change = partial(pickled_adapter, torch=torch)
        yield Mutant(f"{format}-pickle-{torch}", format, change, True)
    for name, text in {"deep": DEEP, "none": "", "list": "[]", "null": "null"}.items():
        yield Mutant(f"{format}-content-{name}", format, m.content(file, text), True)


def pickled_adapter(folder: Path, rng: object, torch: bool) -> None:
    (folder / "adapter_model.safetensors").unlink()
    (m.torch_pickled if torch else m.pickled)(folder, "adapter_model.bin")


# GGUF


NUMBERS = (0, 1, 3, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
KEYS = [
    "context_length", "embedding_length", "block_count", "feed_forward_length",
    "attention.head_count", "attention.head_count_kv", "vocab_size",
]  # fmt: skip


def gguf() -> Iterator[Mutant]:
    """Yields changes of GGUF files."""
    yield from numbered("header", "gguf", 50, m.flip("*.gguf", 0, 0.1))
    yield from of_bytes("gguf", 30, 12)
    yield from of_bytes("gguf-packed", 20, 6)
    counts = {"version": (0, "I"), "tensors": (4, "Q"), "pairs": (12, "Q"), "key": (20, "Q")}
    for field, (skip, kind) in counts.items():
        for value in NUMBERS if kind == "I" else (*NUMBERS, 2**40, 2**63, 2**64 - 1):
            change = m.number(b"GGUF", skip, kind, value)
            yield Mutant(f"gguf-{field}-{value}", "gguf", change)
    for key in KEYS:
        for value in NUMBERS:
            change = m.number(f"llama.{key}".encode(), 4, "I", value)
            yield Mutant(f"gguf-{key}-{value}", "gguf", change)
        for value in (0, 8, 9, 12, 99):
            change = m.number(f"llama.{key}".encode(), 0, "I", value)
            yield Mutant(f"gguf-{key}-type-{value}", "gguf", change)
    for value in (0.0, -1.0, float("nan"), float("inf"), 1e38):
        for key in ("rope.freq_base", "attention.layer_norm_rms_epsilon"):
            change = m.number(f"llama.{key}".encode(), 4, "f", value)
            yield Mutant(f"gguf-{key}-{value}", "gguf", change)
    tensor = b"token_embd.weight"
    fields = {"dims": (0, "I"), "rows": (4, "Q"), "columns": (12, "Q"), "type": (20, "I"),
              "offset": (24, "Q")}  # fmt: skip
    for field, (skip, kind) in fields.items():
        large = (2**40, 2**62, 2**63, 2**64 - 32) if kind == "Q" else (4, 5, 30, 99)
        for value in dict.fromkeys((*NUMBERS, *large)):
            for format in ("gguf", "gguf-packed"):
                change = m.number(tensor, skip, kind, value)
                yield Mutant(f"{format}-tensor-{field}-{value}", format, change)
    for value in (0, 1, 31, 33, 2**31, 2**32 - 1):
        entry = b"\x11\0\0\0\0\0\0\0%s\x04\0\0\0%s"
        old = entry % (b"llama.block_count", b"\x02\0\0\0")
        new = entry % (b"general.alignment", value.to_bytes(4, "little"))
        yield Mutant(f"gguf-alignment-{value}", "gguf", m.replaced(old, new))
    names = {"architecture": (b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lxxxx"),
             "outside": (b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0../.."),
             "magic": (b"GGUF", b"FUGG"), "old": (b"GGUF", b"GGML"),
             "doubled": (b"blk.1.", b"blk.0."), "unknown": (b"blk.1.", b"blk.9.")}  # fmt: skip
    for name, pair in names.items():
        yield Mutant(f"gguf-names-{name}", "gguf", m.replaced(*pair), True)
    for instead in ("nothing", "folder", "pipe", "loop", "dangling", "zero"):
        yield Mutant(f"gguf-file-{instead}", "gguf", m.lose("*", instead), True)


def mutants() -> Iterator[Mutant]:
    """Yields all of them."""
    yield from adapter("adapter")
    yield from adapter("lora")
    yield from gguf()
