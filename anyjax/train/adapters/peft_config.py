"""Checks of PEFT's ``adapter_config.json``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anyjax.errors import BadCheckpoint, Unsupported

CONFIG = "adapter_config.json"
# Options that change the computation, with the values that are supported.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    # PiSSA and the like change the model's own weights, too, when PEFT adds the adapter
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal", "mica"),
    "bias": ("none",), "use_rslora": (False,), "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None), "lora_bias": (False,),
    "layer_replication": (None,), "target_parameters": (None, []),
    "trainable_token_indices": (None,), "alora_invocation_tokens": (None,),
    "use_qalora": (False, None), "use_bdlora": (False, None), "kasa_config": (None,),
    "monteclora_config": (None,), "velora_config": (None,), "arrow_config": (None,),
}  # fmt: skip


def check_config(folder: Path, config: object) -> None:
    """Raises Unsupported for other adapters than LoRA and DoRA of one rank, and BadCheckpoint for
    a file that is no config.
    """
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(kind, str):
        raise _damaged(folder, "it names no peft_type")
    extra = [k for k, values in SUPPORTED.items() if k in config and config[k] not in values]
    if kind != "LORA" or extra:
        raise Unsupported(
            f"an adapter of type {kind}" + (f" with {extra[0]}" if extra else ""),
            where=str(folder / CONFIG),
            why="LoRA and DoRA of one rank are read",
            do="anyjax.from_pretrained(model, adapter=folder) runs it by PEFT's own layers",
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise _damaged(folder, f"its rank r is {rank!r}")
    if type(alpha) not in (int, float):
        raise _damaged(folder, f"its lora_alpha is {alpha!r}")
    if type(config.get("use_dora", False)) is not bool:
        raise _damaged(folder, f"its use_dora is {config['use_dora']!r}")
    for name in ("target_modules", "modules_to_save", "exclude_modules"):
        if not _are_names(config.get(name)):
            raise _damaged(folder, f"its {name} is {config[name]!r}"[:200])


def _are_names(value: object) -> bool:
    names = value if isinstance(value, list) else ["" if value is None else value]
    return all(isinstance(x, str) for x in names)


def _damaged(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        f"{CONFIG} is not one that PEFT writes",
        where=str(folder / CONFIG),
        why=why,
        do="restore the file",
    )


def check_targets(folder: Path, config: dict[str, Any], adapted: set[str], layers: Iterable[str]):
    """Raises BadCheckpoint where the layers that the config names are not those of the weights:
    PEFT would ignore some weights, or add adapters that do nothing.
    """
    if (targets := config.get("target_modules")) in (None, "all-linear"):
        return
    try:
        re.compile(targets if isinstance(targets, str) else "")
    except re.error as error:
        raise _damaged(folder, f"its target_modules is no regular expression: {error}") from None
    unnamed = sorted(x for x in adapted if not _named(x, targets))
    if unnamed:
        raise BadCheckpoint(
            f"the adapter has weights for {unnamed[0]}, and its config does not name it",
            where=str(folder / CONFIG),
            why=f"target_modules leaves out {len(unnamed)} of the {len(adapted)} layers of the "
            "file: a part of the adapter would not be used",
            do="restore the config that was saved with these weights",
        )
    if any(config.get(k) for k in ("exclude_modules", "layers_to_transform", "layers_pattern")):
        return  # these options leave out named layers
    if lacking := sorted(x for x in layers if _named(x, targets) and x not in adapted):
        raise BadCheckpoint(
            f"the adapter has no weights for {lacking[0]}, and its config names it",
            where=str(folder / CONFIG),
            why=f"target_modules names {len(lacking)} layers of the model that the file lacks",
            do="restore the config that was saved with these weights, or take the model that the "
            "adapter was trained on",
        )


def _named(place: str, targets: str | list[str]) -> bool:
    """Applies PEFT's rule: a regular expression for the full name, or a list of name ends."""
    if isinstance(targets, str):
        return re.fullmatch(targets, place) is not None
    return any(place == x or place.endswith(f".{x}") for x in targets)
