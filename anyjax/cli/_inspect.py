"""``anyjax inspect``: a checkpoint's tensors and its operators' lowerings, without the weights."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from rich.table import Table

from anyjax.cli import _shown, _source
from anyjax.cli._codes import ExitCode
from anyjax.cli.options import Inspect
from anyjax.units import size


def inspect(options: Inspect) -> None:
    """Runs ``anyjax inspect``."""
    resolved = _source.resolve(options.source, options.adapter, need_weights=False)
    checkpoint = resolved.checkpoint
    with _shown.progress("reading the config, and calling the model without weights"):
        from anyjax.hf.loading.meta import operators, skeleton

        module = skeleton(checkpoint, options.task)
        used, served, missing = operators(module)
    stored = Counter(dtype for dtype, _ in checkpoint.shapes().values())
    summary = _source.adapter_summary(resolved.adapter) if resolved.adapter else None
    if options.json:
        about: dict[str, Any]
        about = {"model": type(module).__name__, "folder": str(checkpoint.folder), "stored": stored}
        about |= {"adapter": summary, "modules": _groups(module), "missing": missing}
        rows = {k: {"calls": n, "served by": served.get(k)} for k, n in used.items()}
        _shown.as_json(about | {"operators": rows})
        sys.exit(ExitCode.MISSING_OPS if missing else ExitCode.OK)
    console = _shown.console()
    counts = ", ".join(f"{count} {dtype}" for dtype, count in stored.items()) or "no weights here"
    console.print(
        f"[bold]{type(module).__name__}[/bold] from {checkpoint.folder}; stored tensors: {counts}"
    )
    if summary:
        console.print(
            f"adapter {summary['folder']}: {summary['kind']} of rank {summary['rank']}, "
            f"{summary['tensors']} tensors, {summary['parameters']:,} parameters"
        )
    console.print(_parameters(module))
    console.print(_operators(used, served, missing))
    if missing:
        console.print(f"[bold]{len(missing)} without a lowering:[/bold] {', '.join(missing)}")
        sys.exit(ExitCode.MISSING_OPS)
    console.print("every operator can be lowered")


def _groups(module) -> list[dict[str, Any]]:
    """Returns modules with their parameters, equal modules together."""
    rows = []
    for names, tensors in _repeated(_by_module(module)).values():
        parameters = {n: {"shape": list(t.shape), "dtype": _dtype(t)} for n, t in tensors}
        rows.append({"modules": names, "parameters": parameters})
    return rows


def _by_module(module) -> dict[str, list]:
    groups: dict[str, list] = {}
    for name, tensor in module.named_parameters():
        path, _, leaf = name.rpartition(".")
        groups.setdefault(path or "(root)", []).append((leaf, tensor))
    return groups


def _dtype(tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _parameters(module) -> Table:
    header = ["module", "parameters", "size", "dtype", "shapes"]
    table = _shown.table(header, right=(1, 2), title="parameters by module")
    for names, tensors in _repeated(_by_module(module)).values():
        count = sum(t.numel() for _, t in tensors) * len(names)
        nbytes = sum(t.numel() * t.element_size() for _, t in tensors) * len(names)
        title = names[0] if len(names) == 1 else f"{names[0]}  x{len(names)}"
        shapes = ", ".join(f"{n}{list(t.shape)}" for n, t in tensors)
        dtypes = ", ".join(sorted({_dtype(t) for _, t in tensors}))
        table.add_row(title, f"{count:,}", size(nbytes), dtypes, shapes)
    total = sum(p.numel() for p in module.parameters())
    nbytes = sum(p.numel() * p.element_size() for p in module.parameters())
    table.add_row("[bold]total[/bold]", f"{total:,}", size(nbytes))
    return table


def _repeated(groups: dict[str, list]) -> dict[tuple, tuple[list[str], list]]:
    """Groups modules of the same shapes whose names differ only by numbers."""
    groups_by_key: dict[tuple, tuple[list[str], list]] = {}
    for name, tensors in groups.items():
        pattern = ".".join("*" if word.isdigit() else word for word in name.split("."))
        key = (pattern, tuple((n, tuple(t.shape), t.dtype) for n, t in tensors))
        groups_by_key.setdefault(key, ([], tensors))[0].append(name)
    return groups_by_key


def _operators(used: Counter, served: dict[str, str], missing: list[str]) -> Table:
    header = ["operator", "calls", "served by"]
    table = _shown.table(header, right=(1,), title="operators of one forward pass")
    for name, count in sorted(
        used.items(), key=lambda item: (item[0] not in missing, -item[1], item[0])
    ):
        table.add_row(
            name, str(count), "[bold red]nothing[/bold red]" if name in missing else served[name]
        )
    return table
