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
    from anyjax.chips.devices import devices_of
    from anyjax.chips.figures import slice_of

    what = one_of(train=options.train, decode=options.decode, prefill=options.prefill)
    chip, number = slice_of(options.chips)
    mesh = mesh_of(options.mesh)
    with _progress() as report:
        report("importing")
        import jax

        jax.config.update("jax_platforms", "cpu")  # nothing here needs a chip
        on_cpus = chip.name == "cpu" and options.compile is not False
        if on_cpus:
            jax.config.update("jax_num_cpu_devices", number)
        from anyjax.hf.estimate_call import traced_call
        from anyjax.parallel._compile_for import compile_traced
        from anyjax.parallel._estimate import checked_mesh, estimate_traced

        ask = bool(options.compile) and not on_cpus
        roll = ask and what in ("forward", "train")  # caches would be stacked, and taken apart
        if ask:
            devices_of(options.chips)  # before the work
        else:
            mesh = checked_mesh(mesh, options.chips, number)
        report(f"tracing {what} of {options.batch} x {options.length} tokens")
        traced = traced_call(
            options.source, what, options.batch, options.length, dtype=options.dtype,
            optimizer=options.optimizer, remat=options.remat, quantize=options.quantize,
            task=options.task, roll=roll,
        )  # fmt: skip
        name = options.plan or ("fsdp" if what == "train" else "tp")
        result: Any
        if ask:
            result = compile_traced(traced, options.chips, name, mesh, progress=report)
        else:
            result = estimate_traced(
                traced, options.chips, name, mesh, compile=on_cpus, progress=report
            )
    if options.html:
        result.save(options.html)
    if options.json:
        _shown.as_json(compiled_as_dict(result) if ask else as_dict(result))
    elif options.markdown:
        print(result.markdown())
    else:
        for table in compiled_tables(result) if ask else [_table(result)]:
            _shown.console().print(table)


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


def compiled_as_dict(told) -> dict[str, Any]:
    """Returns the figures of a target's compiler by name, and the estimate."""
    names = "chips", "memory", "fits", "traffic", "cycles"
    figures: dict[str, Any] = {name: getattr(told, name) for name in names}
    kernels = [
        {"name": k.name, "kind": k.kind, "where": k.where, "calls": k.calls, "bytes": k.bytes,
         "cycles": k.cycles} for k in told.kernels
    ]  # fmt: skip
    collectives = {
        kind: {"calls": x.calls, "bytes": x.bytes} for kind, x in told.collectives.items()
    }
    return figures | {
        "compile_seconds": told.compiled.seconds, "collectives": collectives,
        "kernels": kernels, "estimate": as_dict(told.estimate),
    }  # fmt: skip


def compiled_tables(told) -> Iterator[Table]:
    """Yields the figures of a target's compiler, and its heaviest kernels."""
    (what, where, estimate, of), *rows = told.rows()
    table = _shown.table(["", where, estimate, ""], title=f"{what}: {of}", right=(1, 2))
    for row in rows:
        table.add_row(*row)
    yield table
    from anyjax.parallel._compile_for import KERNELS

    kernels = _shown.table(KERNELS, right=(2, 3, 4))
    for row in told.heaviest():
        kernels.add_row(*row)
    yield kernels


@contextmanager
def _progress() -> Iterator:
    """Shows the current step on a terminal."""
    with _shown.progress("starting") as status:
        yield lambda text: status.update(text)
