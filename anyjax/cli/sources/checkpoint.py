"""A Hugging Face checkpoint, and the adapter on it; PyTorch runs it beside JAX."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from anyjax.cli import _media, _shown, _tokenizer
from anyjax.cli._shown import timed
from anyjax.cli.sources import Contents, Opened, Peer, Request, since_start
from anyjax.errors import BadCheckpoint, HubUnreachable, Unsupported, WrongValue
from anyjax.hf.loading.find.adapter import CONFIG, base_of, files_of, is_adapter
from anyjax.hf.loading.find.checkpoint import Checkpoint, find_checkpoint
from anyjax.typing import PyTree
from anyjax.units import size

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from anyjax.model import Model


@dataclass(frozen=True)
class ResolvedSource:
    """A checkpoint, and the folder of the adapter on it."""

    checkpoint: Checkpoint
    adapter: Path | None

    @property
    def path(self) -> Path:
        """The path for ``from_pretrained``."""
        return self.checkpoint.gguf or self.checkpoint.folder

    def tokenizer(self) -> Any:
        """Loads the adapter's tokenizer if it has one, else that of the base model."""
        gguf = self.checkpoint.gguf
        if self.adapter is not None and (self.adapter / "tokenizer_config.json").exists():
            return _tokenizer.load(self.adapter)
        return _tokenizer.load(self.checkpoint.folder, gguf.name if gguf else None)


def resolve(source: str, adapter: str | None = None, **options: Any) -> ResolvedSource:
    """Finds a checkpoint and the adapter on it; nothing heavy is imported.

    Args:
      source: folder or hub id of a checkpoint, or the folder of an adapter.
      adapter: folder or hub id of an adapter.
      **options: as ``anyjax.hf.loading.find.checkpoint.find_checkpoint`` takes it.
    """
    if adapter is None and is_adapter(source):
        source, adapter = base_of(source), source
        checkpoint = _base(source, adapter, options)
    else:
        checkpoint = find_checkpoint(source, **options)
    folder = None if adapter is None else files_of(adapter).folder
    return ResolvedSource(checkpoint, folder)


def _base(source: str, adapter: str, options: dict[str, Any]) -> Checkpoint:
    """Finds the base model of an adapter; if it is missing, the error tells how to name another."""
    try:
        return find_checkpoint(source, **options)
    except (BadCheckpoint, HubUnreachable) as error:
        error.where = f"{Path(adapter) / CONFIG} names it as the base model"
        error.advise(f"name the folder of the base model: MODEL --adapter {adapter}")
        raise


def model_of(source: ResolvedSource, **options: Any) -> Model:
    """Loads the Model, with a LoRA adapter merged; other adapters run by PEFT's layers."""
    import anyjax

    if source.adapter is None:
        return anyjax.from_pretrained(source.path, **options)
    try:
        from anyjax.train import load_adapter, merge

        return merge(load_adapter(anyjax.from_pretrained(source.path, **options), source.adapter))
    except (Unsupported, ImportError):
        return anyjax.from_pretrained(source.path, adapter=source.adapter, **options)


def opened(request: Request) -> Opened:
    """Opens a checkpoint with an example of its call; a prompt's tokens are the example's."""
    if request.adapter and not request.weights:
        raise WrongValue(
            "--adapter with --no-weights",
            where="anyjax explore",
            why="an adapter is put on weights",
            do="leave one of them out",
        )
    resolved = resolve(
        request.source, request.adapter,
        allow_pickle=request.allow_pickle, need_weights=request.weights,
    )  # fmt: skip
    request.report("importing torch, transformers and JAX")
    import anyjax.hf.loading.load
    from anyjax.hf.loading import inputs

    imports = since_start()
    request.report("loading weights")
    load, loaded = timed(lambda: _load(resolved, request))
    request.report("converting")
    convert, model = timed(lambda: anyjax.from_torch(loaded) if request.peer else loaded)
    module: Any = loaded if request.peer else model.source.module
    if not request.peer:
        from anyjax.hf.estimate_call import checked_length

        checked_length(model, request.length)
    media: dict[str, np.ndarray] = {}
    kwargs: dict[str, Any]
    note = ""
    if request.image or request.audio:
        prompt = _media.Prompt(request.prompt, request.image or (), request.audio or ())
        media, tokenizer = _media.batch_of(resolved.checkpoint.folder, prompt)
        peers = _media.forward_of(module, media)
        kwargs = anyjax.static(model, peers)  # grids of pictures decide what is computed
        ids = media.pop("input_ids", None)
    else:
        tokenizer, note = _tokenizer_of(resolved, module, request)
        ids = None if tokenizer is None else _tokenizer.encode(tokenizer, request.prompt)
        example = inputs.example(module, ids, request.length)
        peers = {k: np.repeat(x, request.rows, 0) for k, x in example.items()}
        kwargs = dict(peers)
    if not request.cache and "use_cache" in inspect.signature(module.forward).parameters:
        kwargs["use_cache"] = False
    return Opened(
        model=model, kwargs=kwargs, place=resolved.adapter or resolved.checkpoint.folder,
        seconds={"imports": imports, "load": load, "convert": convert}, note=note,
        peer=_peer(module, peers) if request.peer else None,
        tokenizer=tokenizer, ids=ids, media=media, writes=ids is not None and _writes(module),
        adapter=resolved.adapter,
    )  # fmt: skip


def _load(resolved: ResolvedSource, request: Request) -> Any:
    """Returns the Model; for a comparison transformers' module, which both sides then use."""
    options: dict[str, Any] = {"dtype": request.dtype, "task": request.task}
    if not request.weights:
        from anyjax.hf.estimate_call import abstract_model

        return abstract_model(request.source, **options)
    if request.peer and resolved.adapter is None:
        from anyjax.hf.loading.decide import decide
        from anyjax.hf.loading.module.build import build_module

        return build_module(decide(resolved.checkpoint, **options))
    model = model_of(resolved, allow_pickle=request.allow_pickle, **options)
    return model.to_torch().eval() if request.peer else model


def _writes(module: torch.nn.Module) -> bool:
    """Returns True if a module of transformers is a language model that continues texts."""
    from transformers.generation import GenerationMixin

    return isinstance(module, GenerationMixin) and not module.config.is_encoder_decoder


def _tokenizer_of(
    resolved: ResolvedSource, module: PreTrainedModel, request: Request
) -> tuple[Any, str]:
    """Returns the tokenizer of a model that writes, if it is to write or there is a prompt, and a
    remark where there is none: the outputs of a model without one are compared all the same.
    """
    if not request.prompt and not (request.peer and _writes(module)):
        return None, ""
    try:
        return resolved.tokenizer(), ""
    except BadCheckpoint:
        if request.prompt:
            raise
        return None, "no tokenizer: token ids are made up, and no text is written"


def _peer(module: PreTrainedModel, example: dict[str, np.ndarray]) -> Peer:
    """Returns PyTorch's side."""
    import torch

    tensors = {k: torch.from_numpy(x) for k, x in example.items()}
    inputs = {k: x.to(module.dtype) if x.is_floating_point() else x for k, x in tensors.items()}

    def run() -> PyTree:
        with torch.no_grad():
            return module(**inputs)

    return Peer("PyTorch", run, _floats)


def _floats(out: PyTree) -> dict[str, Any]:
    """Returns the floating-point outputs by name, without caches; torch's as numpy's in float32."""
    import torch

    pairs: Any = (
        out.items()
        if hasattr(out, "items")
        else enumerate(out if isinstance(out, tuple) else (out,))
    )
    arrays = {str(k): x for k, x in pairs if "float" in str(getattr(x, "dtype", ""))}
    return {k: x.float().numpy() if isinstance(x, torch.Tensor) else x for k, x in arrays.items()}


def contents(request: Request) -> Contents:
    """Shows tensors and the lowerings of operators, without the weights."""
    resolved = resolve(request.source, request.adapter, need_weights=False)
    with _shown.progress("reading the config, and calling the model without weights"):
        from anyjax.hf.loading.meta import operators, skeleton

        module = skeleton(resolved.checkpoint, request.task)
        used, served, missing = operators(module)
    folder, name = resolved.checkpoint.folder, type(module).__name__
    stored = Counter(dtype for dtype, _ in resolved.checkpoint.shapes().values())
    counts = ", ".join(f"{count} {dtype}" for dtype, count in stored.items()) or "no weights here"
    adapter = _adapter_summary(resolved.adapter) if resolved.adapter else None
    lines = [f"{name} from {folder}; stored tensors: {counts}"]
    if adapter:
        lines.append(
            f"adapter {adapter['folder']}: {adapter['kind']} of rank {adapter['rank']}, "
            f"{adapter['tensors']} tensors, {adapter['parameters']:,} parameters"
        )
    groups = _repeated(module)
    verdict = "every operator can be lowered"
    if missing:
        verdict = f"{len(missing)} without a lowering: {', '.join(missing)}"
    modules = [
        {
            "modules": names,
            "parameters": {k: {"shape": [*x.shape], "dtype": _dtype(x)} for k, x in tensors},
        }
        for names, tensors in groups
    ]
    rows = {k: {"calls": n, "served by": served.get(k)} for k, n in used.items()}
    about = {"model": name, "folder": str(folder), "stored": stored, "adapter": adapter}
    return Contents(
        {**about, "modules": modules, "missing": missing, "operators": rows},
        [*lines, _parameters(groups), _operators(used, served, missing), verdict],
        missing,
    )


def _adapter_summary(folder: Path) -> dict[str, Any]:
    """Returns kind, rank and sizes of an adapter, from its files' headers."""
    files = files_of(folder)
    return {
        "folder": str(folder),
        "kind": "DoRA" if files.config.get("use_dora") else files.config["peft_type"],
        "rank": files.config.get("r"),
        "tensors": len(files.shapes),
        "parameters": sum(map(math.prod, files.shapes.values())),
    }


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


Groups = list[tuple[list[str], list[tuple[str, "torch.Tensor"]]]]


def _repeated(module: torch.nn.Module) -> Groups:
    """Returns modules with their params; those of the same shapes whose names differ only by
    numbers are together.
    """
    modules: dict[str, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in module.named_parameters():
        path, _, leaf = name.rpartition(".")
        modules.setdefault(path or "(root)", []).append((leaf, tensor))
    groups: dict[tuple, tuple[list[str], list]] = {}
    for path, tensors in modules.items():
        pattern = ".".join("*" if word.isdigit() else word for word in path.split("."))
        key = (pattern, tuple((k, tuple(x.shape), x.dtype) for k, x in tensors))
        groups.setdefault(key, ([], tensors))[0].append(path)
    return [*groups.values()]


def _parameters(groups: Groups) -> Table:
    header = ["module", "parameters", "size", "dtype", "shapes"]
    table = _shown.table(header, right=(1, 2), title="parameters by module")
    totals = np.zeros(2, int)
    for names, tensors in groups:
        sizes = np.array([(x.numel(), x.numel() * x.element_size()) for _, x in tensors]).sum(0)
        totals += sizes * len(names)
        title = names[0] if len(names) == 1 else f"{names[0]}  x{len(names)}"
        shapes = ", ".join(f"{k}{[*x.shape]}" for k, x in tensors)
        dtypes = ", ".join(sorted({_dtype(x) for _, x in tensors}))
        count, nbytes = sizes * len(names)
        table.add_row(title, f"{count:,}", size(nbytes), dtypes, shapes)
    table.add_row(Text("total", style="bold"), f"{totals[0]:,}", size(totals[1]))
    return table


def _operators(used: Counter, served: dict[str, str], missing: list[str]) -> Table:
    header = ["operator", "calls", "served by"]
    table = _shown.table(header, right=(1,), title="operators of one forward pass")
    for name in sorted(used, key=lambda k: (k not in missing, -used[k], k)):
        nothing = Text("nothing", style="bold red")
        table.add_row(name, str(used[name]), nothing if name in missing else served[name])
    return table
