"""``tojax inspect``: what is in a checkpoint, and which of its operators can be lowered, without
its weights.
"""

from __future__ import annotations

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table


def inspect(source: str, task: str | None) -> None:
    """See ``tojax inspect --help``."""
    console = Console(highlight=False)
    with Console(stderr=True).status("reading the config"):
        from tojax.hf.checkpoint import find
        from tojax.hf.meta import operators, skeleton

        found = find(source, need_weights=False)
        module = skeleton(found, task)
        used, served, missing = operators(module)
    stored = Counter(dtype for dtype, _ in found.shapes().values())
    said = ", ".join(f"{count} {dtype}" for dtype, count in stored.items()) or "no weights here"
    console.print(
        f"[bold]{type(module).__name__}[/bold] from {found.folder}; stored tensors: {said}"
    )
    console.print(_parameters(module))
    console.print(_operators(used, served, missing))
    if missing:
        console.print(f"[bold]{len(missing)} without a lowering:[/bold] {', '.join(missing)}")
        sys.exit(4)
    console.print("every operator can be lowered")


def _parameters(module) -> Table:
    table = Table(
        "module",
        "parameters",
        "MB",
        "dtype",
        "shapes",
        title="parameters by module",
        title_justify="left",
    )
    for column in table.columns[1:3]:
        column.justify = "right"
    groups: dict[str, list] = {}
    for name, tensor in module.named_parameters():
        groups.setdefault(name.rpartition(".")[0] or "(root)", []).append(
            (name.rpartition(".")[2], tensor)
        )
    for kind, (names, tensors) in _repeated(groups).items():
        del kind
        count = sum(t.numel() for _, t in tensors) * len(names)
        size = sum(t.numel() * t.element_size() for _, t in tensors) * len(names)
        title = names[0] if len(names) == 1 else f"{names[0]}  x{len(names)}"
        shapes = ", ".join(f"{n}{list(t.shape)}" for n, t in tensors)
        dtypes = ", ".join(sorted({str(t.dtype).removeprefix("torch.") for _, t in tensors}))
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
    table = Table(
        "operator",
        "calls",
        "served by",
        title="operators of one forward pass",
        title_justify="left",
    )
    table.columns[1].justify = "right"
    for name, count in sorted(
        used.items(), key=lambda item: (item[0] not in missing, -item[1], item[0])
    ):
        table.add_row(
            name, str(count), "[bold red]nothing[/bold red]" if name in missing else served[name]
        )
    return table
