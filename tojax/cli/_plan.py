"""``tojax plan``: what a model needs on chips that are not here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tojax.cli import _shown
from tojax.errors import WrongArguments


@dataclass(frozen=True)
class Options:
    """The verb's options, as typed."""

    chips: str
    what: str
    batch: int
    length: int
    plan: str | None
    mesh: str | None
    dtype: str | None
    optimizer: str
    remat: bool
    quantize: str | None
    task: str | None
    compile: bool | None
    markdown: bool
    as_json: bool
    html: str | None


def plan(source: str, options: Options) -> None:
    """See ``tojax plan --help``."""
    from tojax.parallel.estimation.chips import slice_of

    chip, number = slice_of(options.chips)
    mesh = mesh_of(options.mesh)
    with _progress() as said:
        said("importing")
        import jax

        jax.config.update("jax_platforms", "cpu")  # nothing here needs a chip
        if options.compile or (chip.name == "cpu" and options.compile is None):
            jax.config.update("jax_num_cpu_devices", number)
        from tojax.hf.estimate_call import traced_call
        from tojax.parallel._estimate import checked_mesh, estimate_traced

        mesh = checked_mesh(mesh, options.chips, number)
        said(f"tracing {options.what} of {options.batch} x {options.length} tokens")
        traced = traced_call(
            source, options.what, options.batch, options.length, dtype=options.dtype,
            optimizer=options.optimizer, remat=options.remat, quantize=options.quantize,
            task=options.task,
        )  # fmt: skip
        name = options.plan or ("fsdp" if options.what == "train" else "tp")
        found = estimate_traced(
            traced, options.chips, name, mesh, compile=options.compile, progress=said
        )
    if options.html:
        found.save(options.html)
    if options.as_json:
        _shown.as_json(told(found))
    elif options.markdown:
        print(found.markdown())
    else:
        _shown.console().print(_table(found))


def one_of(**asked: bool) -> str:
    """The call that is asked for; a forward pass without any.

    Raises:
      WrongArguments: more than one is.
    """
    found = [name for name, given in asked.items() if given]
    if len(found) > 1:
        raise WrongArguments(
            f"--{' and --'.join(found)} are asked for",
            where="tojax plan",
            why="each is a program of its own",
            do="take one of them; run the command once for each",
        )
    return found[0] if found else "forward"


def mesh_of(text: str | None) -> dict[str, int] | None:
    """Axes of a mesh as typed.

    Raises:
      WrongArguments: it is something else.

    Example:
      >>> mesh_of("model=4,data=2")
      {'model': 4, 'data': 2}
    """
    if text is None:
        return None
    pairs = [re.fullmatch(r"\s*([a-z_]+)=([1-9]\d*)\s*", part) for part in text.split(",")]
    found = {m[1]: int(m[2]) for m in pairs if m is not None}
    if len(found) != len(pairs):
        raise WrongArguments(
            f"{text!r} is no mesh",
            where="--mesh",
            why="a mesh is names of axes with their sizes, each name once",
            do="write --mesh data=2,model=4",
        )
    return found


PLAIN = (
    "what", "model", "count", "mesh", "plan", "dtype", "weights", "memory", "gradients", "outputs",
    "temporaries", "products", "others", "traffic", "compute", "moving", "linking", "tokens",
    "useful", "peak", "fits", "seconds", "bound", "tokens_per_second", "utilization", "otherwise",
    "notes",
)  # fmt: skip


def told(found) -> dict[str, Any]:
    """An estimate's numbers by name: bytes, FLOPs and seconds on each device."""
    links = [vars(c) for c in found.communication]
    numbers = {name: getattr(found, name) for name in PLAIN}
    return {"chip": found.chip.name, **numbers, "communication": links}


def _table(found) -> Table:
    (_, model, weights), (_, what, where), *rows = found.rows()
    rows = [row for row in rows if row[0] != "note"]
    title = f"{model}, {weights}: {what}, {where}"
    table = _shown.table(["", "per device", ""], title=title, right=(1,))
    table.caption = "\n".join(found.notes) or None
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def _progress() -> Iterator:
    """Says on a terminal what is done just now."""
    console = Console(stderr=True)
    with console.status("starting") as status:
        yield lambda said: status.update(said)
