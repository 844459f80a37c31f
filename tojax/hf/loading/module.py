"""Checkpoints as torch modules: transformers' own loader, with the reading left for later."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any

import torch
import transformers

from tojax import warn_once
from tojax.errors import BadCheckpoint, NewWeights, WrongValue
from tojax.hf.loading import deferred
from tojax.hf.loading.checkpoint import Checkpoint, stored_in
from tojax.hf.loading.classes import config_of, model_class, refusing
from tojax.hf.loading.private import LOADER
from tojax.hf.loading.quantized.gguf_blocks import kept
from tojax.hf.loading.quantized.schemes import told_in
from tojax.hf.loading.quantized.tensors import matrices
from tojax.torch.compat.patches import Patch, applied

LOCK = threading.Lock()
LISTED = 20  # names in an error


def load_module(
    found: Checkpoint,
    reader: deferred.Reader | None = None,
    *,
    dtype: Any = None,
    task: str | None = None,
    classes: int | None = None,
    given: Collection[str] = (),
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> torch.nn.Module:
    """The torch module in evaluation mode, every weight in place or BadCheckpoint.

    With a ``reader`` weights from safetensors files are ``Deferred`` tensors, which it reads;
    without one they are torch's. ``classes`` is a number of classes other than the config's,
    ``given`` are weights that an adapter brings.
    """
    cls = model_class(found, task, trust_remote_code)
    options: dict[str, Any] = {
        "dtype": _torch_dtype(dtype),
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # _check names them all
        "local_files_only": True,
    }
    if trust_remote_code:
        options["trust_remote_code"] = True
    do = "compare config.json with the weights: tojax inspect FOLDER"
    if classes is not None:
        options["num_labels"] = classes
    told = told_in(found.config)
    if told:
        options["config"] = config = config_of(found, trust_remote_code)
        config.num_labels = options.pop("num_labels", config.num_labels)
    with quiet(), _deferring(reader, told), refusing(found, "load", do):
        if found.gguf is not None:
            module, told = _from_gguf(found, cls, options)
        else:
            safe = None if allow_pickle else True
            module, told = cls.from_pretrained(found.folder, use_safetensors=safe, **options)
    chosen = task is not None and found.gguf is None
    _check(found, told, module, chosen, given)
    return module.eval()


def _torch_dtype(dtype: Any) -> torch.dtype | str:
    if dtype is None or isinstance(dtype, torch.dtype):
        return "auto" if dtype is None else dtype
    import jax.numpy as jnp

    from tojax.torch.core.dtypes import TO_TORCH

    known = {d.name: t for d, t in TO_TORCH.items() if jnp.issubdtype(d, jnp.floating)}
    try:
        return known[jnp.dtype(dtype).name]
    except (TypeError, KeyError):
        raise WrongValue(
            f"dtype={dtype!r}",
            why="weights are floating-point numbers that torch and JAX both know",
            do=f"use one of {', '.join(sorted(known))}",
        ) from None


def _from_gguf(found: Checkpoint, cls, options) -> tuple[torch.nn.Module, dict[str, Any]]:
    """transformers' table of GGUF names and layouts, and the gguf package's unpacking, but for what
    can stay packed.
    """
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = config_of(found)
    with torch.device("meta"):
        skeleton = cls.from_config(config)
    tensors = load_gguf_checkpoint(found.gguf, return_tensors=True, model_to_load=skeleton)
    assert found.gguf is not None, "asked for by its caller"
    weights = kept(found.gguf, tensors["tensors"])
    return type(skeleton).from_pretrained(None, config=config, state_dict=weights, **options)


@contextlib.contextmanager
def _deferring(reader: deferred.Reader | None, told: dict[str, Any]) -> Iterator[None]:
    """While this lasts, this thread's loading in transformers gets deferred tensors."""
    if reader is None:
        yield
        return
    thread = threading.get_ident()

    def load(original, model, state_dict, files, *args, **kwargs):
        if state_dict is None and files and all(str(f).endswith(".safetensors") for f in files):
            stored = {k: v for f in files for k, v in stored_in(f).items()}
            if told:
                state_dict = matrices(stored, told, reader, model)
            else:
                state_dict = {k: deferred.from_file(v, reader) for k, v in stored.items()}
        return original(model, state_dict, files, *args, **kwargs)

    with LOCK, applied([Patch(LOADER, load)], lambda: threading.get_ident() == thread):
        yield


def _check(
    found: Checkpoint, told: dict[str, Any], module, chosen: bool, given: Collection[str] = ()
) -> None:
    """Raises BadCheckpoint, naming every weight that is not as the model wants it. A ``chosen``
    head may leave out weights of the checkpoint's own, and may be new where none are ``given``.
    """
    name = type(module).__name__
    missing = sorted({*told.get("missing_keys", ())} - {*given})
    misshaped = [_misshaped(x) for x in sorted(told.get("mismatched_keys", ()))]
    extra = [] if chosen else sorted(told.get("unexpected_keys", ()))
    if missing and chosen and not given and name not in (found.config.get("architectures") or ()):
        warn_once.warn(
            f"{found.folder.name} has no {', '.join(missing)}: torch drew them at random for "
            f"{name}, which has to be trained (torch.manual_seed before makes them repeatable)",
            NewWeights,
        )
        missing = []
    problems = {"missing": missing, "misshaped": misshaped, "unexpected": extra}
    said = [f"{len(v)} {k}" for k, v in problems.items() if v]
    every = [f"    {k:<11}{x}" for k, v in problems.items() for x in v]
    rest = [f"    and {len(every) - LISTED} more"] if len(every) > LISTED else []
    if said:
        raise BadCheckpoint(
            "\n".join(
                [f"the weights do not fit {name}: {', '.join(said)}", *every[:LISTED], *rest]
            ),
            where=str(found.gguf or found.folder),
            why="config and weights belong to different models, or one is incomplete",
            do="compare them with `tojax inspect FOLDER`; a head named with task=... may leave "
            "weights out",
        )


def _misshaped(told: Any) -> str:
    name, stored, wanted = told if isinstance(told, tuple) else (told, (), ())
    return f"{name} is {list(stored)}, not {list(wanted)}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers' own warnings and bars off: what matters of them is raised as an error."""
    logging = transformers.utils.logging
    # Their handlers' levels: changing the logger's own makes Python forget every logger's level.
    handlers, bars = logging.get_logger("transformers").handlers, logging.is_progress_bar_enabled()
    levels = [(handler, handler.level) for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.ERROR)
    if bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        for handler, level in levels:
            handler.setLevel(level)
        if bars:
            logging.enable_progress_bar()
