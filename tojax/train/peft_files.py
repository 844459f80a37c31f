"""Adapters in PEFT's files: ``adapter_config.json`` and ``adapter_model.safetensors``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from tojax.errors import BadCheckpoint, Unsupported
from tojax.model import Model
from tojax.train._lora import held, lora, merge
from tojax.train.adapted import Adapted, Adapter
from tojax.train.disk import writing

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
KINDS = ("lora_A", "lora_B", "lora_magnitude_vector")
PREFIX = "base_model.model."
# What changes what is computed, and what it may be.
PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none",), "use_rslora": (False,), "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None), "modules_to_save": (None, []), "lora_bias": (False,),
    "layer_replication": (None,), "target_parameters": (None, []),
    "trainable_token_indices": (None,),
}  # fmt: skip


def save_adapter(model: Model, folder: str | os.PathLike) -> None:
    """Writes the adapters of a Model that ``lora`` made, as PEFT does: its
    ``PeftModel.from_pretrained(base, folder)`` loads them, and so does ``load_adapter``.

    Args:
      model: with adapters of weights of torch modules, in the layout that torch has.
      folder: a new folder, or one whose adapter is replaced.

    Raises:
      Unsupported: the model has no adapters, or also trains other params.
      NotWritten: the folder cannot be written to.

    Example:
      >>> import tempfile, torch
      >>> model = tojax.from_torch(torch.nn.Sequential(torch.nn.Linear(8, 2)))
      >>> folder = tempfile.mkdtemp()
      >>> tojax.train.save_adapter(tojax.train.lora(model, 2, "0.weight"), folder)
      >>> sorted(tojax.train.load_adapter(model, folder).params)
      ['0.lora_A', '0.lora_B']
    """
    source = model.source
    adapters = source.adapters if isinstance(source, Adapted) else ()
    others = [k for k in model.params if adapters and not k.endswith(KINDS)]
    if not adapters or others:
        raise Unsupported(
            "save_adapter of a model " + (f"that trains {others[0]}" if others else "without any"),
            why="PEFT's files hold the matrices of adapters",
            do="tojax.train.lora(model, ...) makes some; save others with model.to_torch()",
        )
    turned = [_is_turned(source, adapter) for adapter in adapters]
    tensors: dict[str, np.ndarray] = {}
    for adapter, turn in zip(adapters, turned):
        parts = {kind: adapter.part(kind) for kind in KINDS}
        own: dict[str, Any] = {k: model.params[x] for k, x in parts.items() if x in model.params}
        own = transposed(own) if turn else own
        place = f"{PREFIX}{adapter.place}"
        tensors |= {
            f"{place}.{kind}" + ("" if kind == KINDS[2] else ".weight"): np.ascontiguousarray(x)
            for kind, x in own.items()
        }
    rank = model.params[adapters[0].part("lora_A")].shape[0]
    config = {
        "peft_type": "LORA", "task_type": None, "inference_mode": True, "bias": "none",
        "r": rank, "lora_alpha": adapters[0].scale * rank, "lora_dropout": 0.0,
        "target_modules": [adapter.place for adapter in adapters], "fan_in_fan_out": turned[0],
        "use_dora": adapters[0].dora, "base_model_name_or_path": _path_of(source),
    }  # fmt: skip
    target = Path(folder)
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        for name, write in (
            (WEIGHTS, lambda file: save_file(tensors, file, metadata={"format": "pt"})),
            (CONFIG, lambda file: file.write_text(json.dumps(config, indent=2) + "\n")),
        ):
            write(scratch := target / f".{name}.part")
            scratch.replace(target / name)


def load_adapter(model: Model, folder: str | os.PathLike) -> Model:
    """The model with the LoRA adapter of PEFT's files, ready to be trained further.

    Args:
      model: what the adapter was trained on.
      folder: where PEFT's ``save_pretrained`` or ``save_adapter`` wrote it.

    Raises:
      BadCheckpoint: the files are missing or damaged, or fit another model.
      Unsupported: another kind than LoRA and DoRA of plain matrices.
    """
    folder = Path(folder)
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise BadCheckpoint(
            f"{folder.name} holds no adapter that can be read",
            where=str(folder),
            why=str(error).splitlines()[0],
            do=f"give a folder with {CONFIG} and {WEIGHTS}",
        ) from error
    odd = [k for k, plain in PLAIN.items() if k in config and config[k] not in plain]
    if config.get("peft_type") != "LORA" or odd:
        raise Unsupported(
            f"an adapter of type {config.get('peft_type')}" + (f" with {odd[0]}" if odd else ""),
            where=str(folder / CONFIG),
            why="LoRA and DoRA of one rank are read",
            do="tojax.from_pretrained(model, adapter=folder) runs it by PEFT's own layers",
        )
    model = merge(model)
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, x in tensors.items():
        place, _, kind = key.removeprefix(PREFIX).removesuffix(".weight").rpartition(".")
        found.setdefault(place, {})[kind] = x
    known = {k.removesuffix(".weight") for k in held(model)}
    if strange := sorted(found.keys() - known):
        raise BadCheckpoint(
            f"the adapter does not fit the model: there is no {strange[0]}",
            where=str(folder),
            why=f"{len(strange)} of its {len(found)} matrices have names that the model has not",
            do="give the model that the adapter was trained on",
        )
    pattern = "^(" + "|".join(re.escape(f"{place}.weight") for place in found) + ")$"
    options = {"alpha": config["lora_alpha"], "dora": bool(config.get("use_dora"))}
    out = lora(model, config["r"], pattern, **options)
    params = dict(out.params)
    assert isinstance(out.source, Adapted)
    for adapter in out.source.adapters:
        own = found[adapter.place]
        own = transposed(own) if _is_turned(out.source, adapter) else own
        for kind, x in own.items():
            part = adapter.part(kind)
            params[part] = _fitting(x, params.get(part), adapter, folder)
    return out.with_params(params)


def transposed(parts: dict[str, Any]) -> dict[str, Any]:
    """The parts for the other layout, (in, out): the transpose of B @ A."""
    return parts | {"lora_A": parts["lora_B"].T, "lora_B": parts["lora_A"].T}


def _fitting(x: np.ndarray, own: Any, adapter: Adapter, folder: Path) -> Any:
    if own is None or own.shape != x.shape:
        raise BadCheckpoint(
            f"the adapter's part of {adapter.place} has shape {x.shape}",
            where=str(folder),
            why="the model has no such part" if own is None else f"the model's has {own.shape}",
            do="give the model that the adapter was trained on",
        )
    return jnp.asarray(x, own.dtype)


def _is_turned(source: Any, adapter: Adapter) -> bool:
    """Whether the module keeps its matrix as (in, out), unlike nn.Linear."""
    if source.framework != "torch":
        raise Unsupported(
            f"PEFT's files for a model from {source.framework}",
            why="they name modules of torch",
            do="keep model.params with tojax.train's checkpoints or Orbax",
        )
    return type(source.module.get_submodule(adapter.place)).__name__ == "Conv1D"


def _path_of(source: Any) -> str | None:
    """The checkpoint's hub id, or its folder as it is found from everywhere."""
    named = getattr(getattr(source.module, "config", None), "name_or_path", None) or None
    return str(Path(named).resolve()) if named and Path(named).exists() else named
