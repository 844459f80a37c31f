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
from tojax.train.adapters._lora import held, lora, merge
from tojax.train.adapters.adapted import Adapted, Adapter
from tojax.train.adapters.layout import LAYERS, is_turned, layer_of, sharing
from tojax.train.adapters.peft_config import CONFIG, check_config, check_targets
from tojax.train.run.disk import writing
from tojax.transforms.packed import Packed

WEIGHTS = "adapter_model.safetensors"
KINDS = ("lora_A", "lora_B", "lora_magnitude_vector")
EMBEDDING = {"lora_embedding_A": "lora_A", "lora_embedding_B": "lora_B"}  # kept with no .weight
PREFIX = "base_model.model."


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
    for adapter in adapters:
        _check_layer(source, adapter.place)
    tensors: dict[str, np.ndarray] = {}
    for adapter in adapters:
        parts = {kind: adapter.part(kind) for kind in KINDS}
        own: dict[str, Any] = {k: model.params[x] for k, x in parts.items() if x in model.params}
        tensors |= {k: np.ascontiguousarray(x) for k, x in _written(source, adapter, own).items()}
    rank = model.params[adapters[0].part("lora_A")].shape[0]
    config = {
        "peft_type": "LORA", "task_type": None, "inference_mode": True, "bias": "none",
        "r": rank, "lora_alpha": adapters[0].scale * rank, "lora_dropout": 0.0,
        "target_modules": [adapter.place for adapter in adapters],
        "fan_in_fan_out": any(layer_of(source, x.place) == "Conv1D" for x in adapters),
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
    """The model with the LoRA adapter of PEFT's files, ready to be trained further; modules that
    the adapter saved whole are trained whole.

    Args:
      model: what the adapter was trained on.
      folder: where PEFT's ``save_pretrained`` or ``save_adapter`` wrote it.

    Raises:
      BadCheckpoint: the files are missing or damaged, fit another model, or one another not.
      Unsupported: another kind than LoRA and DoRA of matrices.
    """
    folder = Path(folder)
    config, tensors = _read(folder)
    model = merge(model)
    found, whole = _sorted(folder, model, tensors, config.get("modules_to_save") or [])
    layers = (n for n, _ in model.source.module.named_modules() if layer_of(model.source, n))
    check_targets(folder, config, {*found}, layers)
    names = "|".join(re.escape(f"{place}.weight") for place in found)
    train = "|".join(map(re.escape, whole))
    options = {"alpha": config["lora_alpha"], "dora": bool(config.get("use_dora"))}
    out = lora(model, config["r"], f"^({names})$", **options, train=train and f"^({train})$")
    params = dict(out.params)
    assert isinstance(out.source, Adapted)
    for adapter in out.source.adapters:
        own = found[adapter.place]
        own = transposed(own) if is_turned(out.source, adapter.place) else own
        for kind in KINDS if adapter.dora else KINDS[:2]:
            part = adapter.part(kind)
            if kind not in own:
                raise _unfit(folder, f"the file has no {part}")
            params[part] = _fitting(own.pop(kind), params[part], part, folder)
        if own:
            raise _unfit(folder, f"{adapter.place}.{min(own)} has no meaning in its config")
    for name, x in whole.items():
        params[name] = _fitting(x, params[name], name, folder)
    return out.with_params(params)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config and the arrays of an adapter's folder."""
    try:
        for name in (CONFIG, WEIGHTS):
            if (folder / name).exists() and not (folder / name).is_file():
                raise OSError(f"{name} is no regular file")
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise BadCheckpoint(
            f"{folder.name} holds no adapter that can be read",
            where=str(folder),
            why=str(error).splitlines()[0],
            do=f"give a folder with {CONFIG} and {WEIGHTS}",
        ) from error
    check_config(folder, config)
    return config, tensors


def _sorted(folder: Path, model: Model, tensors: dict[str, np.ndarray], modules: list[str]):
    """(the parts of adapters by place, the weights of modules that were saved whole by name)."""
    found: dict[str, dict[str, np.ndarray]] = {}
    whole: dict[str, np.ndarray] = {}
    saved = lambda place: any(place.endswith(m) for m in modules)  # as PEFT matches
    for key, x in tensors.items():
        name = key.removeprefix(PREFIX)
        place, _, kind = name.removesuffix(".weight").rpartition(".")
        if kind in KINDS or kind in EMBEDDING:
            found.setdefault(place, {})[EMBEDDING.get(kind, kind)] = x
        elif kind == "base_layer":  # PEFT writes the matrices of embeddings, too
            _check_base(folder, model, place, x)
        elif any(map(saved, _above(name))):
            whole[name] = x
        elif name in held(model):
            _check_base(folder, model, name.removesuffix(".weight"), x)
        else:
            raise _unfit(folder, f"{key} is no part of a LoRA adapter, nor of modules_to_save")
    for place in found:
        _check_layer(model.source, place, folder)
    for name in whole:
        _check_shared(model.source, name.rpartition(".")[0], str(folder))
    if strange := sorted(whole.keys() - model.params.keys()):
        raise _unfit(folder, f"the model has no {strange[0]} of its own")
    if not found:
        raise _unfit(folder, "it has no matrices")
    return found, whole


def _above(name: str) -> list[str]:
    """The places that a param lies in."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _check_base(folder: Path, model: Model, place: str, x: np.ndarray) -> None:
    own = held(model).get(f"{place}.weight")
    if isinstance(own, Packed):
        return  # rounded: the same numbers are not there to compare
    if own is None and sharing(model.source, place):
        return  # the layer itself is refused
    if own is None or own.shape != x.shape or not np.array_equal(np.asarray(own, x.dtype), x):
        raise _unfit(folder, f"it was trained on another {place}.weight, which it holds")


def _check_layer(source: Any, place: str, folder: Path | None = None) -> None:
    """Raises where PEFT has no adapter of this layer alone, or the model no such layer."""
    if source.framework != "torch":
        raise Unsupported(
            f"PEFT's files for a model from {source.framework}",
            why="they name modules of torch",
            do="keep model.params with tojax.train's checkpoints or Orbax",
        )
    if layer_of(source, place) is not None:
        return _check_shared(source, place, str(folder or source.name))
    if folder is not None and place not in dict(source.module.named_modules()):
        raise _unfit(folder, f"there is no {place} in the model")
    raise Unsupported(
        f"PEFT's adapter of {place}",
        where=str(folder or source.name),
        why=f"matrices of {', '.join(LAYERS)} go there and back",
        do="adapt those alone",
    )


def _check_shared(source: Any, place: str, where: str) -> None:
    """Raises Unsupported for a layer whose weight another one has: PEFT changes one of them."""
    if shared := sharing(source, place):
        raise Unsupported(
            f"PEFT's adapter of {place}",
            where=where,
            why=f"{shared[0]} has the same weight, which PEFT does not change with it",
            do="adapt other layers, or untie the weights in the model's config first",
        )


def _written(source: Any, adapter: Adapter, own: dict[str, Any]) -> dict[str, Any]:
    """The parts of an adapter under the names that PEFT gives them."""
    own = transposed(own) if is_turned(source, adapter.place) else own
    names = {KINDS[2]: KINDS[2]} | {k: f"{k}.weight" for k in KINDS[:2]}
    if layer_of(source, adapter.place) == "Embedding":
        names |= {v: k for k, v in EMBEDDING.items()}
    return {f"{PREFIX}{adapter.place}.{names[k]}": x for k, x in own.items()}


def transposed(parts: dict[str, Any]) -> dict[str, Any]:
    """The parts for the other layout, (in, out): the transpose of B @ A."""
    return parts | {"lora_A": parts["lora_B"].T, "lora_B": parts["lora_A"].T}


def _fitting(x: np.ndarray, own: Any, name: str, folder: Path) -> Any:
    if own.shape != x.shape:
        raise _unfit(folder, f"{name} has shape {x.shape}, the model's has {own.shape}")
    return jnp.asarray(x, own.dtype)


def _unfit(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        "the adapter does not fit the model",
        where=str(folder),
        why=why,
        do="give the model that the adapter was trained on, and all of the adapter's files",
    )


def _path_of(source: Any) -> str | None:
    """The checkpoint's hub id, or its folder as it is found from everywhere."""
    named = getattr(getattr(source.module, "config", None), "name_or_path", None) or None
    return str(Path(named).resolve()) if named and Path(named).exists() else named
