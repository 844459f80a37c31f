"""Whom an error concerns: the module path, the user's line, and a stub for a missing lowering."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType

import jax
import torch

from anyjax.errors import DataDependent, ForwardFailed, MissingOps, Unsupported
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lengths import Size, decided
from anyjax.torch.core.schema import read, table

MEMORY = "data pointer", "data is not allocated", "is not supported for tensor subclasses"
NUMBER = "a number, int(x) or x.item(),"

aten = torch.ops.aten

HERE = Path(__file__).resolve().parents[2]  # anyjax
NOT_THE_USERS = tuple(
    f"{p}/" for p in (Path(torch.__file__).parent, Path(jax.__file__).parent, HERE)
)
# Where a call goes through on its way to a function of torch's own, such as torch.mul.
NOT_THE_USERS += tuple(
    str(HERE.parent / f"{name}.py") for name in ("calling", "explicit_mesh", "model", "program")
)

JAXS = f"{Path(jax.__file__).parent}/"

MASKED = {aten.index, aten._unsafe_index, aten.masked_select, aten.index_put}


def deciding(op, operands: list[torch.Tensor]) -> list[torch.Tensor]:
    """The operands that a shape can come from: a mask, not what it selects from; integers, not the
    floats beside them.
    """
    if op.overloadpacket in MASKED:
        masks = [t for t in operands[1:] if t.dtype in (torch.bool, torch.uint8)]
        return masks or operands
    counts = [t for t in operands if not (t.is_floating_point() or t.is_complex())]
    return counts or operands


def where(error: BaseException | None = None) -> str:
    """``path.in.model (Class) at file:line``: where the call, or the error, came from.

    The line is the innermost that is not torch's, JAX's or ours; the module is the innermost whose
    method runs.
    """
    if (trace := current_trace.trace()) is not None and trace.place is not None:
        return trace.place()
    line = ""
    modules: list[torch.nn.Module] = []
    for frame, number in _frames(error):
        name = frame.f_code.co_filename
        if not line and not name.startswith((*NOT_THE_USERS, "<")) and "contextlib" not in name:
            line = f"{short(name)}:{number}"
        if name.startswith(JAXS):  # whose locals, once looked at, would outlive their tracers
            continue
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and (not modules or modules[-1] is not owner):
            modules.append(owner)
    if not modules:
        return line or "unknown"
    root, inner = modules[-1], modules[0]
    path = next((n for n, m in root.named_modules() if m is inner), "")
    return f"{path or 'the model'} ({type(inner).__name__}) at {line or 'unknown'}"


def _frames(error: BaseException | None) -> list[tuple[FrameType, int]]:
    """Innermost first."""
    if error is not None:
        return [(frame, number) for frame, number in traceback.walk_tb(error.__traceback__)][::-1]
    return list(traceback.walk_stack(sys._getframe(2)))


def short(file: str) -> str:
    """Returns a path as one would say it: from site-packages or the current folder on."""
    if "site-packages/" in file:
        return file.split("site-packages/")[-1]
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def failed(op, operands, error: Exception) -> ForwardFailed:
    """Returns the error for a lowering that JAX refuses, nearly always for the operands' shapes."""
    shapes = ", ".join(
        f"{str(t.dtype).removeprefix('torch.')}[{','.join(map(str, t.shape))}]" for t in operands
    )
    return ForwardFailed(
        f"{op} cannot be computed: {' '.join(str(error).split())[:200]}",
        where=where(),
        why=f"its operands are {shapes}",
        do="check the shapes and dtypes of the model's inputs",
    )


def spoken(op) -> str:
    """Returns an operator as users write it, where its name in torch is never seen."""
    return NUMBER if op is torch.ops.aten._local_scalar_dense.default else str(op)


def data_dependent(what: str, names: tuple[str, ...], place: str) -> DataDependent:
    """The error for a value, computed from these inputs, that is needed while it is traced."""
    sources = ", ".join(names) or "a traced value"
    return DataDependent(
        f"{what} needs the values of {sources} while they are traced",
        arguments=names,
        general=True,
        where=place,
        why="the program is compiled for all values at once, so none is known yet",
        do=f"run it outside of jax.jit, or close over {sources} instead of tracing it",
    )


def reads_memory(error: Exception) -> bool:
    """Returns whether this is torch's complaint about memory that a tensor on JAX has none of."""
    return any(text in str(error) for text in MEMORY)


def unknown_size(what: str, size: Size = 0) -> DataDependent:
    """Returns the error for a size that is needed as a number, where the program leaves it open."""
    if decided(size):
        trace = current_trace.trace()
        names = [name for name in trace.lengths if name in str(size)]
        numbers = ", ".join(f"{name} of {trace.lengths[name].place}" for name in names)
        arguments = trace.named(trace.lengths.origins(size))
        values = f"the values of {', '.join(arguments) or 'a traced tensor'}"
        return DataDependent(
            f"{what} is needed while it is traced, and depends on {values}: {numbers}",
            arguments=arguments,
            general=True,
            where=where(),
            why="how many elements a mask chooses is known when the program runs",
            do="run it outside of jax.jit, or write it with torch.where over all elements",
        )
    return DataDependent(
        f"{what} is needed while it is traced, and depends on a symbolic size",
        where=where(),
        why="the program is made for all sizes at once, so none is known",
        do="fix that size, or say what it is at least: "
        "jax.export.symbolic_shape(..., constraints=[...])",
    )


def unserved_size(op, reason: str, places: str, arguments: tuple[str, ...]) -> DataDependent:
    """Returns the error for an operator on a tensor whose size values decide."""
    values = f"the values of {', '.join(arguments)}" if arguments else "values"
    return DataDependent(
        f"{op} of a tensor whose size depends on {values}: {reason}",
        arguments=arguments,
        general=True,
        where=where(),
        why=f"how many elements {places} gives is known when the program runs",
        do="run it outside of jax.jit, or write it with torch.where over all elements",
    )


def refuse_kind(op) -> None:
    """Raises Unsupported for operators on kinds of tensors that no lowering could make."""
    for kind_name, (kind, why, do) in KINDS.items():
        if kind_name in str(op):
            raise Unsupported(f"{op} works on {kind} tensors", where=where(), why=why, do=do)


KINDS = {
    "sparse": (
        "sparse",
        "JAX arrays are dense, and torch's sparse layouts have no counterpart",
        "keep the tensor dense",
    ),
    "aten.quantize_per_": (
        "quantized",
        "JAX has no dtype that carries a scale and a zero point",
        "convert the model before it is quantized, or use torch.fake_quantize_per_tensor_affine "
        "or torch.ops.quantized_decomposed",
    ),
}


def missing_ops(ops: dict[str, private.OpOverload], places: dict[str, str]) -> MissingOps:
    """Returns the error that names all operators without a lowering, with a stub to paste for the
    first.
    """
    listed = "; ".join(f"{name} in {places[name]}" for name in list(ops)[:6])
    listed += f"; and {len(ops) - 6} more" if len(ops) > 6 else ""
    name, op = next(iter(ops.items()))
    near = table.like(name)
    arguments, space = ", ".join(read(op).kept), " " * 9
    header = f"def {name.split('.')[1]}({arguments}): ..."
    stub = f"{space}@anyjax.lowers(torch.ops.{name})\n{space}{header}"
    return MissingOps(
        f"no lowering for {len(ops)} operator{'s' * (len(ops) > 1)}: {', '.join(ops)}",
        ops=tuple(ops),
        where=listed,
        why="torch has no decomposition for it either"
        + (f"; the table has {', '.join(near)}" if near else ""),
        do="write it in jnp and convert again (or run it in torch, slowly: "
        f'on_missing="callback"):\n{stub}',
    )
