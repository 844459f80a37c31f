"""``anyjax plan``: an estimate of memory and time on chips that are not present."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table

from anyjax.cli import _shown
from anyjax.cli.writing import Plan
from anyjax.errors import WrongArguments

if TYPE_CHECKING:
    from anyjax.parallel._compile_for import Compilation
    from anyjax.parallel.estimation.report import Estimate


def plan(options: Plan) -> None:
    """Runs ``anyjax plan``."""
    from anyjax.chips.devices import devices_of
    from anyjax.chips.figures import slice_of

    what = one_of(train=options.train, decode=options.decode, prefill=options.prefill)
    chip, number = slice_of(options.chips)
    mesh = mesh_of(options.mesh)
    with _shown.progress("importing") as status:
        report = status.update
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
        _shown.console().print(*(compiled_tables(result) if ask else _tables(result)), sep="\n")


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


FIGURES = (
    "what", "model", "count", "mesh", "plan", "dtype", "weights", "memory", "gradients", "outputs",
    "temporaries", "products", "others", "traffic", "compute", "moving", "linking", "tokens",
    "useful", "peak", "fits", "seconds", "bound", "tokens_per_second", "utilization", "otherwise",
    "notes",
)  # fmt: skip
COMPILED = "chips", "memory", "fits", "traffic", "cycles"
KERNEL = "name", "kind", "where", "calls", "bytes", "cycles"


def figures(report: object, names: Iterable[str]) -> dict[str, Any]:
    """Returns some attributes by name."""
    return {name: getattr(report, name) for name in names}


def as_dict(estimate: Estimate) -> dict[str, Any]:
    """Returns an estimate's numbers by name: bytes, FLOPs and seconds on each device."""
    links = [vars(c) for c in estimate.communication]
    return {"chip": estimate.chip.name, **figures(estimate, FIGURES), "communication": links}


def _tables(estimate: Estimate) -> Iterator[Table]:
    (_, model, weights), (_, what, where), *rows = estimate.rows()
    rows = [row for row in rows if row[0] != "note"]
    title = f"{model}, {weights}: {what}, {where}"
    caption = "\n".join(estimate.notes) or None
    yield _shown.table(["", "per device", ""], rows, title=title, caption=caption, right=(1,))


def compiled_as_dict(compilation: Compilation) -> dict[str, Any]:
    """Returns the figures of a target's compiler by name, and the estimate."""
    traffic = compilation.collectives.items()
    return figures(compilation, COMPILED) | {
        "compile_seconds": compilation.compiled.seconds,
        "collectives": {kind: {"calls": x.calls, "bytes": x.bytes} for kind, x in traffic},
        "kernels": [figures(x, KERNEL) for x in compilation.kernels],
        "estimate": as_dict(compilation.estimate),
    }


def compiled_tables(compilation: Compilation) -> Iterator[Table]:
    """Yields the figures of a target's compiler, and its heaviest kernels."""
    from anyjax.parallel._compile_for import KERNELS

    (what, where, estimate, call), *rows = compilation.rows()
    header = ["", where, estimate, ""]
    yield _shown.table(header, rows, title=f"{what}: {call}", right=(1, 2))
    yield _shown.table(KERNELS, compilation.heaviest(), right=(2, 3, 4))
