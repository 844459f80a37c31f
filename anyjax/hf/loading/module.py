"""Checkpoints as torch modules through transformers' own loader, their weights not yet read."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from anyjax import warn_once
from anyjax.errors import BadCheckpoint, NewWeights, WrongValue
from anyjax.hf.loading import deferred
from anyjax.hf.loading.checkpoint import Checkpoint, Stored, check_layers, stored_in
from anyjax.hf.loading.classes import Architecture, architecture_of, quiet, refusing
from anyjax.hf.loading.flax_weights import read_flax
from anyjax.hf.loading.private import LOADER
from anyjax.hf.loading.quantized.gguf_blocks import packed_matrices
from anyjax.hf.loading.quantized.schemes import quantization_of
from anyjax.hf.loading.quantized.tensors import matrices
from anyjax.torch.compat.patches import Patch, applied

LOCK = threading.Lock()
LISTED = 20  # names in an error
FREE = 2**24  # so many numbers that are not stored are allocated without a question


def load_module(
    checkpoint: Checkpoint,
    reader: deferred.Reader | None = None,
    *,
    dtype: Any = None,
    task: str | None = None,
    classes: int | None = None,
    adapter_weights: Collection[str] = (),
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> torch.nn.Module:
    """Loads a checkpoint as a torch module in evaluation mode.

    Args:
      checkpoint: its files.
      reader: reads the ``Deferred`` tensors that weights from safetensors files become; without a
        reader they are torch's own tensors.
      dtype: of the weights, the checkpoint's by default.
      task: the head, as in ``AutoModelFor...``.
      classes: the number of classes, where it is not the config's.
      adapter_weights: names of weights that an adapter adds; they may be missing.
      allow_pickle: also load pickled weights.
      trust_remote_code: also run model code that comes with the checkpoint.

    Raises:
      BadCheckpoint: weights are missing, surplus or of another shape.
    """
    architecture = architecture_of(checkpoint, task, trust_remote_code)
    options: dict[str, Any] = {
        "dtype": _torch_dtype(dtype),
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # _check names them all
        "local_files_only": True,
    }
    if trust_remote_code:
        options["trust_remote_code"] = True
    do = "compare config.json with the weights: anyjax inspect FOLDER"
    if classes is not None:
        options["num_labels"] = classes
    quantization = quantization_of(checkpoint.config)
    if quantization:
        options["config"] = config = architecture.config
        config.num_labels = options.pop("num_labels", config.num_labels)
    with quiet(), _deferring(reader, quantization), refusing(checkpoint, "load", do):
        if checkpoint.gguf is not None:
            module, loading_info = _from_gguf(architecture, options)
        elif checkpoint.flax:
            module, loading_info = _from_flax(architecture, options)
        else:
            options["use_safetensors"] = None if allow_pickle else True
            loaded = architecture.cls.from_pretrained(checkpoint.folder, **options)
            module, loading_info = loaded
    chosen = task is not None and checkpoint.gguf is None
    _check_weights(checkpoint, loading_info, module, chosen, adapter_weights)
    return module.eval()


def _torch_dtype(dtype: Any) -> torch.dtype | str:
    if dtype is None or isinstance(dtype, torch.dtype):
        return "auto" if dtype is None else dtype
    import jax.numpy as jnp

    from anyjax.torch.core.dtypes import TO_TORCH

    torch_dtypes = {d.name: t for d, t in TO_TORCH.items() if jnp.issubdtype(d, jnp.floating)}
    try:
        return torch_dtypes[jnp.dtype(dtype).name]
    except (TypeError, KeyError):
        raise WrongValue(
            f"dtype={dtype!r}",
            why="weights are floating-point numbers that torch and JAX both know",
            do=f"use one of {', '.join(sorted(torch_dtypes))}",
        ) from None


def _from_gguf(
    architecture: Architecture, options: dict[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Loads a GGUF file by transformers' table of names and layouts.

    The gguf package unpacks the blocks; matrices that can stay packed are packed again.
    """
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config, file = architecture.config, architecture.checkpoint.gguf
    assert file is not None, "checked by the caller"
    stored = GGUFReader(file).tensors
    check_layers(file, config.to_dict(), len(stored))
    with torch.device("meta"):
        skeleton = architecture.cls.from_config(config)
    tensors = load_gguf_checkpoint(file, return_tensors=True, model_to_load=skeleton)
    weights = packed_matrices(stored, tensors["tensors"])
    return type(skeleton).from_pretrained(None, config=config, state_dict=weights, **options)


def _from_flax(
    architecture: Architecture, options: dict[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Loads a checkpoint of transformers' Flax models."""
    checkpoint = architecture.checkpoint
    skeleton = architecture.build()
    weights = read_flax([*checkpoint.flax], skeleton.state_dict().keys())
    check_layers(checkpoint.folder, checkpoint.config, len(weights))
    options = {"config": architecture.config} | options
    return type(skeleton).from_pretrained(None, state_dict=weights, **options)


@contextlib.contextmanager
def _deferring(reader: deferred.Reader | None, quantization: dict[str, Any]) -> Iterator[None]:
    """Makes transformers' loader use deferred tensors, in this thread; without a reader it is only
    kept from allocating far more than is stored.
    """
    thread = threading.get_ident()

    def load(original, model, state_dict, files, *args, **kwargs):
        stored: dict[str, Stored] = {}
        if state_dict is None and files and all(str(f).endswith(".safetensors") for f in files):
            stored = {k: v for f in files for k, v in stored_in(f).items()}
        _check_size(model, state_dict or stored, bool(quantization))
        if stored and reader is not None:
            if quantization:
                state_dict = matrices(stored, quantization, reader, model)
            else:
                state_dict = {k: deferred.from_file(v, reader) for k, v in stored.items()}
        return original(model, state_dict, files, *args, **kwargs)

    with LOCK, applied([Patch(LOADER, load)], lambda: threading.get_ident() == thread):
        yield


def _check_size(
    module: torch.nn.Module,
    stored: Mapping[str, Stored | torch.Tensor],
    packed: bool,
) -> None:
    """Raises BadCheckpoint where a module is far larger than its weights: what does not fit is
    allocated, and drawn at random, before it is compared.
    """
    size = sum(math.prod(x.shape) for x in module.parameters())
    count = sum(math.prod(x.shape) for x in stored.values())
    # packed numbers take 1 bit at least, and stand in integers of 32; weights may be tied in files
    if stored and size > count * (32 if packed else 2) + FREE:
        name = type(module).__name__
        raise BadCheckpoint(
            f"the weights do not fit {name}: they are far fewer than its config says",
            where=name,
            why=f"{name} has {size:.3g} numbers, the files hold {count:.3g}",
            do="compare config and weights: anyjax inspect",
        )


def _check_weights(
    checkpoint: Checkpoint,
    loading_info: dict[str, Any],
    module: torch.nn.Module,
    chosen: bool,
    adapter_weights: Collection[str] = (),
) -> None:
    """Raises BadCheckpoint that names every missing, misshaped and unexpected weight.

    A ``chosen`` head may ignore weights of the checkpoint's own head. Without ``adapter_weights``
    it may also be new: its weights are random, and NewWeights warns.
    """
    name = type(module).__name__
    missing = sorted({*loading_info.get("missing_keys", ())} - {*adapter_weights})
    misshaped = [_misshaped(x) for x in sorted(loading_info.get("mismatched_keys", ()))]
    extra = [] if chosen else sorted(loading_info.get("unexpected_keys", ()))
    if (
        missing
        and chosen
        and not adapter_weights
        and name not in (checkpoint.config.get("architectures") or ())
    ):
        warn_once.warn(
            f"{checkpoint.folder.name} has no {', '.join(missing)}: torch drew them at random for "
            f"{name}, which has to be trained (torch.manual_seed before makes them repeatable)",
            NewWeights,
        )
        missing = []
    problems = {"missing": missing, "misshaped": misshaped, "unexpected": extra}
    counts = [f"{len(v)} {k}" for k, v in problems.items() if v]
    lines = [f"    {k:<11}{x}" for k, v in problems.items() for x in v]
    omitted = [f"    and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    if counts:
        raise BadCheckpoint(
            "\n".join(
                [f"the weights do not fit {name}: {', '.join(counts)}", *lines[:LISTED], *omitted]
            ),
            where=str(checkpoint.gguf or checkpoint.folder),
            why="config and weights belong to different models, or one is incomplete",
            do="compare them with `anyjax inspect FOLDER`; a head named with task=... may leave "
            "weights out",
        )


def _misshaped(mismatch: str | tuple) -> str:
    name, stored, expected = mismatch if isinstance(mismatch, tuple) else (mismatch, (), ())
    return f"{name} is {list(stored)}, not {list(expected)}"
