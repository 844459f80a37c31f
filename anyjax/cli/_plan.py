"""``anyjax plan``: an estimate of memory and time on chips that are not present."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.table import Table

from anyjax.cli import _shown
from anyjax.cli.options import Plan
from anyjax.errors import WrongArguments


def plan(options: Plan) -> None:
    """Runs ``anyjax plan``."""
    from anyjax.parallel.estimation.chips import slice_of

    what = one_of(train=options.train, decode=options.decode, prefill=options.prefill)
    chip, number = slice_of(options.chips)
    mesh = mesh_of(options.mesh)
    with _progress() as report:
        report("importing")
        import jax

        jax.config.update("jax_platforms", "cpu")  # nothing here needs a chip
        if options.compile or (chip.name == "cpu" and options.compile is None):
            jax.config.update("jax_num_cpu_devices", number)
        from anyjax.hf.estimate_call import traced_call
        from anyjax.parallel._estimate import checked_mesh, estimate_traced

        mesh = checked_mesh(mesh, options.chips, number)
        report(f"tracing {what} of {options.batch} x {options.length} tokens")
        traced = traced_call(
            options.source, what, options.batch, options.length, dtype=options.dtype,
            optimizer=options.optimizer, remat=options.remat, quantize=options.quantize,
            task=options.task,
        )  # fmt: skip
        name = options.plan or ("fsdp" if what == "train" else "tp")
        estimate = estimate_traced(
            traced, options.chips, name, mesh, compile=options.compile, progress=report
        )
    if options.html:
        estimate.save(options.html)
    if options.json:
        _shown.as_json(as_dict(estimate))
    elif options.markdown:
        print(estimate.markdown())
    else:
        _shown.console().print(_table(estimate))


def one_of(**flags: bool) -> str:
    """Returns the name of the flag that is set, "forward" without any.

    Raises:
      WrongArguments: several are set.
    """
    names = [name for name, is_set in flags.items() if is_set]
    if len(names) > 1:
        raise WrongArguments(
            f"--{' and --'.join(names)} are asked for",
            where="anyjax plan",
            why="each is a program of its own",
            do="take one of them; run the command once for each",
        )
    return names[0] if names else "forward"


def mesh_of(text: str | None) -> dict[str, int] | None:
    """Parses the axes of a mesh.

    Raises:
      WrongArguments: the text is no mesh.

    Example:
      >>> mesh_of("model=4,data=2")
      {'model': 4, 'data': 2}
    """
    if text is None:
        return None
    pairs = [re.fullmatch(r"\s*([a-z_]+)=([1-9]\d*)\s*", axis) for axis in text.split(",")]
    mesh = {m[1]: int(m[2]) for m in pairs if m is not None}
    if len(mesh) != len(pairs):
        raise WrongArguments(
            f"{text!r} is no mesh",
            where="--mesh",
            why="a mesh is names of axes with their sizes, each name once",
            do="write --mesh data=2,model=4",
        )
    return mesh


FIELDS = (
    "what", "model", "count", "mesh", "plan", "dtype", "weights", "memory", "gradients", "outputs",
    "temporaries", "products", "others", "traffic", "compute", "moving", "linking", "tokens",
    "useful", "peak", "fits", "seconds", "bound", "tokens_per_second", "utilization", "otherwise",
    "notes",
)  # fmt: skip


def as_dict(estimate) -> dict[str, Any]:
    """Returns an estimate's numbers by name: bytes, FLOPs and seconds on each device."""
    links = [vars(c) for c in estimate.communication]
    numbers = {name: getattr(estimate, name) for name in FIELDS}
    return {"chip": estimate.chip.name, **numbers, "communication": links}


def _table(estimate) -> Table:
    (_, model, weights), (_, what, where), *rows = estimate.rows()
    rows = [row for row in rows if row[0] != "note"]
    title = f"{model}, {weights}: {what}, {where}"
    table = _shown.table(["", "per device", ""], title=title, right=(1,))
    table.caption = "\n".join(estimate.notes) or None
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def _progress() -> Iterator:
    """Shows the current step on a terminal."""
    with _shown.progress("starting") as status:
        yield lambda text: status.update(text)
