"""Adapters in PEFT's files: ``adapter_config.json`` and ``adapter_model.safetensors``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.model import Model
from anyjax.source import Source
from anyjax.takes_model import takes_model
from anyjax.train.adapters._lora import base_weights, lora, merge
from anyjax.train.adapters.adapted import Adapted, Adapter
from anyjax.train.adapters.layout import LAYERS, is_turned, layer_of, places_sharing
from anyjax.train.adapters.peft_config import CONFIG, check_config, check_targets
from anyjax.train.run.disk import writing
from anyjax.transforms.packed import Packed
from anyjax.typing import PyTree

WEIGHTS = "adapter_model.safetensors"
KINDS = ("lora_A", "lora_B", "lora_magnitude_vector")
EMBEDDING = {"lora_embedding_A": "lora_A", "lora_embedding_B": "lora_B"}  # without .weight
PREFIX = "base_model.model."


@takes_model
def save_adapter(model: Model, folder: str | os.PathLike[str]) -> None:
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
      >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(8, 2)))
      >>> folder = tempfile.mkdtemp()
      >>> anyjax.train.save_adapter(anyjax.train.lora(model, 2, "0.weight"), folder)
      >>> sorted(anyjax.train.load_adapter(model, folder).params)
      ['0.lora_A', '0.lora_B']
    """
    source = model.source
    adapters = source.adapters if isinstance(source, Adapted) else ()
    extra = [k for k in model.params if adapters and not k.endswith(KINDS)]
    if not adapters or extra:
        raise Unsupported(
            "save_adapter of a model " + (f"that trains {extra[0]}" if extra else "without any"),
            why="PEFT's files hold the matrices of adapters",
            do="anyjax.train.lora(model, ...) makes some; save others with model.to_torch()",
        )
    for adapter in adapters:
        _check_layer(source, adapter.place)
    tensors: dict[str, np.ndarray] = {}
    for adapter in adapters:
        names = {kind: adapter.param_name(kind) for kind in KINDS}
        arrays: dict[str, Any] = {k: model.params[x] for k, x in names.items() if x in model.params}
        named = _named_as_peft(source, adapter, arrays)
        tensors |= {k: np.ascontiguousarray(x) for k, x in named.items()}
    rank = model.params[adapters[0].param_name("lora_A")].shape[0]
    base = type(source.module)
    config = {
        "peft_type": "LORA", "task_type": None, "inference_mode": True, "bias": "none",
        "r": rank, "lora_alpha": adapters[0].scale * rank, "lora_dropout": 0.0,
        "target_modules": [adapter.place for adapter in adapters],
        "fan_in_fan_out": any(layer_of(source, x.place) == "Conv1D" for x in adapters),
        "use_dora": adapters[0].dora, "base_model_name_or_path": _path_of(source),
        # what AutoPeftModel makes the base of, where no task_type says it
        "auto_mapping": {"base_model_class": base.__name__, "parent_library": base.__module__},
    }  # fmt: skip
    target = Path(folder).expanduser()
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        for name, write in (
            (WEIGHTS, lambda file: save_file(tensors, file, metadata={"format": "pt"})),
            (CONFIG, lambda file: file.write_text(json.dumps(config, indent=2) + "\n")),
        ):
            write(scratch := target / f".{name}.param_name")
            scratch.replace(target / name)


@takes_model
def load_adapter(model: Model, folder: str | os.PathLike[str]) -> Model:
    """Loads the LoRA adapter of PEFT's files into a model, ready for further training; modules that
    were saved in full (``modules_to_save``) are params.

    Args:
      model: the model that the adapter was trained on.
      folder: where PEFT's ``save_pretrained`` or ``save_adapter`` wrote it.

    Raises:
      BadCheckpoint: the files are missing or damaged, fit another model, or one another not.
      Unsupported: another kind than LoRA and DoRA of matrices.

    Example:
      >>> import tempfile, torch
      >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(8, 2)))
      >>> folder = tempfile.mkdtemp()
      >>> anyjax.train.save_adapter(anyjax.train.lora(model, 2, "0.weight"), folder)
      >>> anyjax.train.load_adapter(model, folder).params["0.lora_A"].shape
      (2, 8)
    """
    folder = Path(folder).expanduser()
    config, tensors = _read_files(folder)
    model = merge(model)
    matrices, saved = _sort_tensors(folder, model, tensors, config.get("modules_to_save") or [])
    sizes = (n for arrays in matrices.values() for x in arrays.values() for n in x.shape)
    if config["r"] > max(sizes, default=0):  # so large that it is not to be allocated
        raise _unfit(folder, f"no matrix has the rank of its config: {config['r']}"[:99])
    layers = (n for n, _ in model.source.module.named_modules() if layer_of(model.source, n))
    check_targets(folder, config, {*matrices}, layers)
    names = "|".join(re.escape(f"{place}.weight") for place in matrices)
    train = "|".join(map(re.escape, saved))
    options = {"alpha": config["lora_alpha"], "dora": bool(config.get("use_dora"))}
    out = lora(model, config["r"], f"^({names})$", **options, train=train and f"^({train})$")
    params = dict(out.params)
    assert isinstance(out.source, Adapted)
    for adapter in out.source.adapters:
        arrays = matrices[adapter.place]
        arrays = transposed(arrays) if is_turned(out.source, adapter.place) else arrays
        for kind in KINDS if adapter.dora else KINDS[:2]:
            name = adapter.param_name(kind)
            if kind not in arrays:
                raise _unfit(folder, f"the file has no {name}")
            params[name] = _as_param(arrays.pop(kind), params[name], name, folder)
        if arrays:
            raise _unfit(folder, f"{adapter.place}.{min(arrays)} has no meaning in its config")
    for name, x in saved.items():
        params[name] = _as_param(x, params[name], name, folder)
    return out.with_params(params)


def _read_files(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads the config and the arrays of an adapter's folder."""
    try:
        for name in (CONFIG, WEIGHTS):
            if (folder / name).exists() and not (folder / name).is_file():
                raise OSError(f"{name} is no regular file")
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS)
    except (
        OSError, ValueError, LookupError, TypeError, RecursionError, SafetensorError
    ) as error:  # fmt: skip
        raise BadCheckpoint(
            f"{folder.name} holds no adapter that can be read",
            where=str(folder),
            why=str(error).splitlines()[0],
            do=f"give a folder with {CONFIG} and {WEIGHTS}",
        ) from error
    check_config(folder, config)
    return config, tensors


def _sort_tensors(folder: Path, model: Model, tensors: dict[str, np.ndarray], modules: list[str]):
    """Returns (adapters' matrices by place and kind, weights of modules saved in full, by name)."""
    matrices: dict[str, dict[str, np.ndarray]] = {}
    saved: dict[str, np.ndarray] = {}
    in_modules = lambda place: any(place.endswith(m) for m in modules)  # as PEFT matches
    for key, x in tensors.items():
        name = key.removeprefix(PREFIX)
        place, _, kind = name.removesuffix(".weight").rpartition(".")
        if kind in KINDS or kind in EMBEDDING:
            matrices.setdefault(place, {})[EMBEDDING.get(kind, kind)] = x
        elif kind == "base_layer":  # PEFT writes the matrices of embeddings, too
            _check_base(folder, model, place, x)
        elif any(map(in_modules, _parent_paths(name))):
            saved[name] = x
        elif name in base_weights(model):
            _check_base(folder, model, name.removesuffix(".weight"), x)
        else:
            raise _unfit(folder, f"{key} is no part of a LoRA adapter, nor of modules_to_save")
    for place in matrices:
        _check_layer(model.source, place, folder)
    for name in saved:
        _check_shared(model.source, name.rpartition(".")[0], str(folder))
    if absent := sorted(saved.keys() - model.params.keys()):
        raise _unfit(folder, f"the model has no {absent[0]} of its own")
    if not matrices:
        raise _unfit(folder, "it has no matrices")
    return matrices, saved


def _parent_paths(name: str) -> list[str]:
    """Returns the paths of the modules that a param is in, outermost first."""
    steps = name.split(".")
    return [".".join(steps[:i]) for i in range(1, len(steps))]


def _check_base(folder: Path, model: Model, place: str, x: np.ndarray) -> None:
    """Raises BadCheckpoint where a base weight in the file is not that of the model."""
    weight = base_weights(model).get(f"{place}.weight")
    if isinstance(weight, Packed):
        return  # rounded numbers cannot be compared
    if weight is None and places_sharing(model.source, place):
        return  # the layer itself is refused
    if (
        weight is None
        or weight.shape != x.shape
        or not np.array_equal(np.asarray(weight, x.dtype), x)
    ):
        raise _unfit(folder, f"it was trained on another {place}.weight, which it holds")


def _check_layer(source: Source, place: str, folder: Path | None = None) -> None:
    """Raises where PEFT cannot adapt this layer, or the model has none here."""
    if source.framework != "torch":
        raise Unsupported(
            f"PEFT's files for a model from {source.framework}",
            why="they name modules of torch",
            do="keep model.params with anyjax.train's checkpoints or Orbax",
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


def _check_shared(source: Source, place: str, where: str) -> None:
    """Raises Unsupported for a layer that shares its weight: PEFT changes one of the two."""
    if shared := places_sharing(source, place):
        raise Unsupported(
            f"PEFT's adapter of {place}",
            where=where,
            why=f"{shared[0]} has the same weight, which PEFT does not change with it",
            do="adapt other layers, or untie the weights in the model's config first",
        )


def _named_as_peft(
    source: Source, adapter: Adapter, arrays: dict[str, jax.Array]
) -> dict[str, jax.Array]:
    arrays = transposed(arrays) if is_turned(source, adapter.place) else arrays
    names = {KINDS[2]: KINDS[2]} | {k: f"{k}.weight" for k in KINDS[:2]}
    if layer_of(source, adapter.place) == "Embedding":
        names |= {v: k for k, v in EMBEDDING.items()}
    return {f"{PREFIX}{adapter.place}.{names[k]}": x for k, x in arrays.items()}


def transposed(arrays: dict[str, PyTree]) -> dict[str, Any]:
    """Returns an adapter's arrays for the layout (in, out): the transpose of B @ A."""
    return arrays | {"lora_A": arrays["lora_B"].T, "lora_B": arrays["lora_A"].T}


def _as_param(x: np.ndarray, param: jax.Array, name: str, folder: Path) -> jax.Array:
    if param.shape != x.shape:
        raise _unfit(folder, f"{name} has shape {x.shape}, the model's has {param.shape}")
    return jnp.asarray(x, param.dtype)


def _unfit(folder: Path, why: str) -> BadCheckpoint:
    return BadCheckpoint(
        "the adapter does not fit the model",
        where=str(folder),
        why=why,
        do="give the model that the adapter was trained on, and all of the adapter's files",
    )


def _path_of(source: Source) -> str | None:
    """Returns the checkpoint's hub id, or the absolute path of its folder."""
    named = getattr(getattr(source.module, "config", None), "name_or_path", None) or None
    return str(Path(named).resolve()) if named and Path(named).exists() else named
