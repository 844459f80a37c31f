"""``tojax inspect``: what is in a checkpoint, and which of its operators can be lowered, without
its weights.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from tojax.cli import _shown, _source


def inspect(source: str, adapter: str | None, task: str | None, as_json: bool) -> None:
    """See ``tojax inspect --help``."""
    if _source.is_saved(source):
        from tojax.cli import _saved

        _saved.inspect(source, as_json)
        return
    given = _source.named(source, adapter, need_weights=False)
    found = given.found
    with Console(stderr=True).status("reading the config"):
        from tojax.hf.loading.meta import operators, skeleton

        module = skeleton(found, task)
        used, served, missing = operators(module)
    stored = Counter(dtype for dtype, _ in found.shapes().values())
    on_top = _source.adapter_told(given.adapter) if given.adapter else None
    if as_json:
        about: dict[str, Any]
        about = {"model": type(module).__name__, "folder": str(found.folder), "stored": stored}
        about |= {"adapter": on_top, "modules": _groups(module), "missing": missing}
        rows = {k: {"calls": n, "served by": served.get(k)} for k, n in used.items()}
        _shown.as_json(about | {"operators": rows})
        sys.exit(4 if missing else 0)
    console = _shown.console()
    said = ", ".join(f"{count} {dtype}" for dtype, count in stored.items()) or "no weights here"
    console.print(
        f"[bold]{type(module).__name__}[/bold] from {found.folder}; stored tensors: {said}"
    )
    if on_top:
        console.print(
            f"adapter {on_top['folder']}: {on_top['kind']} of rank {on_top['rank']}, "
            f"{on_top['tensors']} tensors, {on_top['parameters']:,} parameters"
        )
    console.print(_parameters(module))
    console.print(_operators(used, served, missing))
    if missing:
        console.print(f"[bold]{len(missing)} without a lowering:[/bold] {', '.join(missing)}")
        sys.exit(4)
    console.print("every operator can be lowered")


def _groups(module) -> list[dict[str, Any]]:
    """Modules with their parameters, those of one kind together."""
    rows = []
    for names, tensors in _repeated(_by_module(module)).values():
        one = {n: {"shape": list(t.shape), "dtype": _dtype(t)} for n, t in tensors}
        rows.append({"modules": names, "parameters": one})
    return rows


def _by_module(module) -> dict[str, list]:
    groups: dict[str, list] = {}
    for name, tensor in module.named_parameters():
        home, _, own = name.rpartition(".")
        groups.setdefault(home or "(root)", []).append((own, tensor))
    return groups


def _dtype(tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _parameters(module) -> Table:
    header = ["module", "parameters", "MB", "dtype", "shapes"]
    table = _shown.table(header, right=(1, 2), title="parameters by module")
    for names, tensors in _repeated(_by_module(module)).values():
        count = sum(t.numel() for _, t in tensors) * len(names)
        size = sum(t.numel() * t.element_size() for _, t in tensors) * len(names)
        title = names[0] if len(names) == 1 else f"{names[0]}  x{len(names)}"
        shapes = ", ".join(f"{n}{list(t.shape)}" for n, t in tensors)
        dtypes = ", ".join(sorted({_dtype(t) for _, t in tensors}))
        table.add_row(title, f"{count:,}", f"{size / 1e6:.2f}", dtypes, shapes)
    total = sum(p.numel() for p in module.parameters())
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    table.add_row("[bold]total[/bold]", f"{total:,}", f"{size / 1e6:.2f}")
    return table


def _repeated(groups: dict[str, list]) -> dict[tuple, tuple[list[str], list]]:
    """Modules that differ only by a number in their name and hold the same shapes, together."""
    found: dict[tuple, tuple[list[str], list]] = {}
    for name, tensors in groups.items():
        pattern = ".".join("*" if part.isdigit() else part for part in name.split("."))
        key = (pattern, tuple((n, tuple(t.shape), t.dtype) for n, t in tensors))
        found.setdefault(key, ([], tensors))[0].append(name)
    return found


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
