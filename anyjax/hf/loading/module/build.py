"""The torch module of a decision, by transformers' own loader; its weights are not yet read."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from anyjax import warn_once
from anyjax.errors import BadCheckpoint, NewWeights
from anyjax.hf.loading.decide import Decision, quiet, refusing
from anyjax.hf.loading.find.checkpoint import Checkpoint, Stored, stored_in
from anyjax.hf.loading.module.adapter import put_on
from anyjax.hf.loading.module.deferred import Reader, from_file
from anyjax.hf.loading.private import LOADER
from anyjax.torch.compat.patches import Patch, applied

LOCK = threading.Lock()
LISTED = 20  # names in an error
FREE = 2**24  # so many numbers that are not stored are allocated without a question


def build_module(decision: Decision, reader: Reader | None = None) -> torch.nn.Module:
    """Builds the torch module of a decision in evaluation mode, with its adapter's layers.

    Args:
      decision: the class, and the files.
      reader: reads the ``Deferred`` tensors that weights from safetensors files become; without a
        reader they are torch's own tensors.

    Raises:
      BadCheckpoint: weights are missing, surplus or of another shape, or the adapter's do not fit.
      MissingDependency: PEFT or gguf is not installed.
      Unsupported: PEFT does not know this type of adapter, or it is a prompt.
    """
    checkpoint, adapter = decision.checkpoint, decision.adapter
    if adapter is not None and adapter.reads_base:
        reader = None  # PiSSA and the like
    options: dict[str, Any] = {
        "dtype": decision.dtype,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # _check_weights names them all
        "local_files_only": True,
        "use_safetensors": None if checkpoint.pickled else True,
    }
    if decision.trusted:
        options["trust_remote_code"] = True
    converts = checkpoint.gguf is not None or bool(checkpoint.flax)
    do = "compare config.json with the weights: anyjax inspect FOLDER"
    with quiet(), refusing(checkpoint, "load", do), _deferring(checkpoint, reader):
        if checkpoint.quantization or converts:
            options["config"] = decision.config
        elif decision.classes is not None:
            options["num_labels"] = decision.classes
        if converts:
            from anyjax.hf.loading.module.flax_weights import read_flax
            from anyjax.hf.loading.module.quantized.gguf_blocks import read_gguf

            cls, weights = read_flax(decision) if checkpoint.flax else read_gguf(decision)
            loaded = cls.from_pretrained(None, state_dict=weights, **options)
        else:
            loaded = decision.cls.from_pretrained(checkpoint.folder, **options)
        module, loading_info = loaded
    _check_weights(decision, module, loading_info)
    return module.eval() if adapter is None else put_on(module, adapter)


@contextlib.contextmanager
def _deferring(checkpoint: Checkpoint, reader: Reader | None) -> Iterator[None]:
    """Makes transformers' loader use deferred tensors, in this thread; without a reader it is only
    kept from allocating far more than is stored.

    transformers takes tensors, but not beside a folder, which has the generation's settings, too
    (https://github.com/huggingface/transformers/pull/21542; try again after 5.23).
    """
    thread, quantization = threading.get_ident(), checkpoint.quantization

    def load(original, model, state_dict, files, *args, **kwargs):
        stored: dict[str, Stored] = {}
        if state_dict is None and files and all(str(f).endswith(".safetensors") for f in files):
            headers = (checkpoint.headers.get(Path(f)) or stored_in(f) for f in files)
            stored = {k: v for header in headers for k, v in header.items()}
        _check_size(model, state_dict or stored, bool(quantization))
        if stored and reader is not None:
            if quantization:
                from anyjax.hf.loading.module.quantized.tensors import matrices

                state_dict = matrices(stored, quantization, reader, model)
            else:
                state_dict = {k: from_file(v, reader) for k, v in stored.items()}
        return original(model, state_dict, files, *args, **kwargs)

    with LOCK, applied([Patch(LOADER, load)], lambda: threading.get_ident() == thread):
        yield


def _check_size(
    module: torch.nn.Module, stored: Mapping[str, Stored | torch.Tensor], packed: bool
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
    decision: Decision, module: torch.nn.Module, loading_info: dict[str, Any]
) -> None:
    """Raises BadCheckpoint that names every missing, misshaped and unexpected weight.

    A chosen head may ignore weights of the checkpoint's own head. Without an adapter's it may also
    be new: its weights are random, and NewWeights warns.
    """
    checkpoint, name = decision.checkpoint, type(module).__name__
    missing = sorted({*loading_info.get("missing_keys", ())} - {*decision.added})
    misshaped = [_misshaped(x) for x in sorted(loading_info.get("mismatched_keys", ()))]
    extra = [] if decision.chosen else sorted(loading_info.get("unexpected_keys", ()))
    is_new = decision.chosen and not decision.added
    if missing and is_new and name not in (checkpoint.config.get("architectures") or ()):
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
