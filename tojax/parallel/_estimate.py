"""Memory, arithmetic and communication of a model on chips that are not here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jax.sharding import AbstractMesh, AxisType

from tojax.errors import WrongArguments
from tojax.model import Model
from tojax.parallel._shard import specs, weights
from tojax.parallel.estimation import call as calls
from tojax.parallel.estimation.call import Traced, trace
from tojax.parallel.estimation.chips import Chip, slice_of
from tojax.parallel.estimation.compiled import compile_call
from tojax.parallel.estimation.cost.fusion import fused
from tojax.parallel.estimation.cost.lifetimes import peak
from tojax.parallel.estimation.cost.work import time_of, work
from tojax.parallel.estimation.divide.combine import combined
from tojax.parallel.estimation.divide.partition import Divided, Placed, divided
from tojax.parallel.estimation.report import Communication, Estimate
from tojax.parallel.plans.axes import NAMES, batch_axes
from tojax.parallel.plans.plans import BY_NAME, Rules

Plan = str | Rules
TENSOR = 8  # devices that share a layer by default: they fit one host, or one node
DIVIDED = 0.5  # of the weights' bytes at least, or the plan divides nothing worth it
MOST = 4096  # chips that are tried


def estimate(
    model: Model,
    chips: str,
    plan: Plan = "tp+fsdp",
    *args: Any,
    mesh: dict[str, int] | None = None,
    step: Any = None,
    state: Any = None,
    compile: bool | None = None,
    rng: Any = None,
    **kwargs: Any,
) -> Estimate:
    """What a call of the model needs on each of some chips: memory, FLOPs, communication, time.

    Nothing is allocated: the model's arrays and those of the call may be ``ShapeDtypeStruct``. The
    traced program is divided over the mesh operation by operation; its peak is that of its order,
    with elementwise operations fused into what uses them. Times are those of the chip's published
    rates (``estimation/chips.py``), all reached at the same time: nothing is faster.

    Args:
      model: any Model; its arrays may be shapes and dtypes.
      chips: such as "v6e-8", "h100-16"; "cpu-8" for eight virtual CPU devices.
      plan: "tp", "fsdp", "tp+fsdp", or rules, as for ``shard``.
      *args, rng, **kwargs: the call; of a training step, the batch.
      mesh: sizes of its axes, {"data": 2, "model": 4}; by default one axis for "tp" and "fsdp", at
        most 8 chips along "model" for both.
      step, state: a step of ``tojax.train.make_step`` and the ``TrainState`` that it takes; then a
        training step is estimated.
      compile: also compile for as many virtual CPU devices of this process, and report what XLA
        says; by default on CPUs only.

    Returns:
      An Estimate: print it, or ``save`` it as a page.

    Raises:
      WrongArguments: no such chip or plan, a mesh of another number of chips, a plan that does not
        divide the weights or the rows of the call, a step without its state and batch.

    Example:
      >>> import jax, numpy as np, torch
      >>> model = tojax.from_torch(torch.nn.Linear(512, 512))
      >>> told = tojax.parallel.estimate(model, "v6e-8", "tp", np.ones((16, 512), np.float32))
      >>> told.memory["params"] * 8 == 512 * 513 * 4, told.fits
      (True, True)
    """
    if step is not None and (state is None or len(args) != 1 or kwargs):
        raise WrongArguments(
            f"a training step of {len(args) + len(kwargs)} arguments"
            + (" without its state" if state is None else ""),
            where="tojax.parallel.estimate",
            why="it takes a TrainState and one batch",
            do="write estimate(model, chips, plan, batch, step=step, state=state)",
        )
    made = calls.step(step, state, args[0]) if step is not None else calls.forward(
        model, args, kwargs, rng)  # fmt: skip
    return of_call(trace(made), chips, plan, mesh, compile=compile)


def of_call(
    traced: Traced,
    chips: str,
    plan: Plan = "tp+fsdp",
    mesh: dict[str, int] | None = None,
    *,
    compile: bool | None = None,
    search: bool = True,
    progress: Callable[[str], Any] = lambda said: None,
) -> Estimate:
    """The estimate of a traced call, see ``estimate``."""
    chip, number = slice_of(chips)
    mesh = checked_mesh(mesh, chips, number) or mesh_for(plan, number)
    progress(f"dividing over {', '.join(f'{k}={v}' for k, v in mesh.items())}")
    inputs = places(traced, mesh, plan)
    checked_rows(traced, mesh)
    checked_plan(traced, mesh, plan, inputs)
    found = _evaluated(traced, chip, mesh, plan, inputs)
    if compile or (compile is None and chip.name == "cpu"):
        progress(f"compiling for {number} virtual devices")
        found = replace(found, compiled=compile_call(traced, mesh, inputs))
    if search and found.fits is False:
        progress("looking for what fits")
        found = replace(found, otherwise=_fitting(traced, chip, number, plan))
    return found


def places(traced: Traced, mesh: dict[str, int], plan: Plan) -> list[Placed]:
    """Where the inputs of a call lie; a decoding step finds its cache where the prefill left it."""
    call, sharded = traced.call, abstract(mesh)
    args, kwargs = call.example
    named: Any = plan
    given = specs(call.model, sharded, named, args, kwargs)
    caches = None
    if call.source is not None:
        before = call.source
        part = divided(before.program, mesh, places(before, mesh, plan), (), weak(before))
        left = [(part.placed[v] if v is not None else ()) for v in part.program.outputs]
        caches = left[-sum(r.kind == "cache" for r in traced.roles) :]
    return calls.places(traced, sharded, given, caches)


def abstract(mesh: dict[str, int]) -> Any:
    """A mesh without devices."""
    kinds = (AxisType.Auto,) * len(mesh)
    return AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=kinds)


def weak(traced: Traced) -> list[bool]:
    """Which inputs are weights, that are gathered where they do not lie as the rest."""
    return [role.kind in ("params", "optimizer", "state") for role in traced.roles]


def part_of(traced: Traced, mesh: dict[str, int], inputs: list[Placed]) -> Divided:
    """The call's program on one device."""
    ends = [None if i is None else inputs[i] for i in traced.outputs]
    return combined(divided(traced.program, mesh, inputs, ends, weak(traced)))


def _evaluated(
    traced: Traced, chip: Chip, mesh: dict[str, int], plan: Plan, inputs: list[Placed]
) -> Estimate:
    part = part_of(traced, mesh, inputs)
    fusions = fused(part)
    most, done = peak(part, fusions), work(part, fusions)
    held: dict[str, int] = {}
    for role, v in zip(traced.roles, part.program.inputs):
        held[role.kind] = held.get(role.kind, 0) + part.bytes(v)
    held = {k: held[k] for k in calls.KINDS if held.get(k)}
    outputs = sum(
        part.bytes(v)
        for v, again in zip(part.program.outputs, traced.outputs)
        if v is not None and again is None
    )
    took = lambda kind, axes, size: time_of(
        kind, size, math.prod(mesh[a] for a in axes), chip.reach(axes, mesh)
    )
    moved = tuple(
        Communication(kind, axes, n, size, took(kind, axes, size))
        for (kind, axes), (n, size) in sorted(done.moved.items())
    )
    call, params = traced.call, traced.call.model.params
    sizes: dict[str, int] = {}
    for x in weights(call.model).values():
        sizes[str(x.dtype)] = sizes.get(str(x.dtype), 0) + math.prod(x.shape)
    products = dict(done.products)
    notes = [*call.notes]
    if chip.devices > 1:
        notes.append(
            f"JAX has {chip.devices} devices in each {chip.name}, with a part of its memory each: "
            "what lies whole on every device is there as often"
        )
    if part.unknown:
        notes.append(f"counted as elementwise on whole arrays: {', '.join(sorted(part.unknown))}")
    packed = vars(call.model.source).get("packed", ())
    return Estimate(
        call.what, call.model.source.name, chip, math.prod(mesh.values()), dict(mesh),
        plan if isinstance(plan, str) else "rules",
        max(products or sizes, key=lambda d: (products or sizes)[d], default="float32"),
        sum(math.prod(x.shape) for x in (*params.values(), *packed)), held,
        held.get("params", 0) if call.what == "train" else 0,
        outputs, most.temporaries, most.largest, products, done.others, done.traffic, moved,
        sum(n / chip.rate(dtype) for dtype, n in products.items()),
        done.traffic / chip.bandwidth, sum(c.seconds for c in moved), call.tokens, traced.useful,
        notes=tuple(notes),
    )  # fmt: skip


def mesh_for(plan: Plan, number: int) -> dict[str, int]:
    """The default mesh of a plan.

    Example:
      >>> mesh_for("tp", 4), mesh_for("tp+fsdp", 8), mesh_for("tp+fsdp", 32)
      ({'model': 4}, {'data': 2, 'model': 4}, {'data': 4, 'model': 8})
    """
    if plan == "fsdp":
        return {"data": number}
    if plan == "tp":
        return {"model": number}
    tensor = math.gcd(number, TENSOR)
    tensor = tensor // 2 if number == tensor and number > 2 else tensor
    return {"data": number // tensor, "model": tensor}


def _fitting(traced: Traced, chip: Chip, number: int, plan: Plan) -> tuple[str, int] | None:
    """The plan by name and the smallest power of two of chips that fit, the given plan first."""
    if not isinstance(plan, str):
        return None
    names = [plan, *(p for p in BY_NAME if p != plan)]
    for count in _powers(number):
        for name in names:
            mesh = mesh_for(name, count)
            if name != "tp+fsdp" and count == number and name == plan:
                continue
            try:
                checked_rows(traced, mesh)
                inputs = places(traced, mesh, name)
                checked_plan(traced, mesh, name, inputs)
            except WrongArguments:
                continue
            if _least(traced, mesh, inputs) > chip.memory:
                continue
            if _evaluated(traced, chip, mesh, name, inputs).fits:
                return name, count
    return None


def _powers(number: int) -> Iterator[int]:
    """The number, and powers of two above it."""
    yield number
    count = 1 << number.bit_length()
    while count <= MOST:
        yield count
        count *= 2


def _least(traced: Traced, mesh: dict[str, int], inputs: list[Placed]) -> int:
    """Bytes of the arguments alone."""
    total = 0
    for v, place in zip(traced.program.inputs, inputs):
        value = traced.program.values[v]
        parts = math.prod(mesh[a] for axes in place for a in axes)
        total += math.ceil(value.size * value.itemsize / parts)
    return total


def checked_mesh(mesh: dict[str, int] | None, chips: str, number: int) -> dict[str, int] | None:
    """The mesh, data first.

    Raises:
      WrongArguments: it has another number of chips.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mapping):
        raise WrongArguments(
            f"mesh={mesh!r}",
            where="tojax.parallel.estimate",
            why="the chips are not here: what is asked for is names of axes with their sizes",
            do='give {"data": 2, "model": 4}; of a mesh of JAX, dict(mesh.shape)',
        )
    if math.prod(mesh.values()) != number:
        shown = " x ".join(f"{k}={v}" for k, v in mesh.items())
        raise WrongArguments(
            f"the mesh {shown} has {math.prod(mesh.values())} chips, {chips} has {number}",
            where="--mesh and --chips, or mesh= and chips=",
            why="every chip is one place of the mesh",
            do=f"take axes whose product is {number}, such as "
            + ",".join(f"{k}={v}" for k, v in mesh_for("tp+fsdp", number).items()),
        )
    first = [k for k in mesh if k in NAMES["fsdp"]]
    return {k: mesh[k] for k in (*first, *(k for k in mesh if k not in first))}


def checked_rows(traced: Traced, mesh: dict[str, int]) -> None:
    """Raises WrongArguments where no input's rows divide over the data axes."""
    axes = batch_axes(abstract(mesh))
    parts = math.prod(mesh[a] for a in axes)
    rows = [
        traced.program.values[v].shape[0]
        for role, v in zip(traced.roles, traced.program.inputs)
        if role.kind == "inputs" and traced.program.values[v].shape
    ]
    if parts > 1 and rows and all(n % parts for n in rows):
        raise WrongArguments(
            f"a batch of {rows[0]} does not divide over {parts} chips",
            where=f"mesh {mesh}, axis {', '.join(axes)}",
            why="each chip along the data axis takes the same number of rows",
            do=f"take a batch that is a multiple of {parts}, or a smaller data axis",
        )


def checked_plan(traced: Traced, mesh: dict[str, int], plan: Plan, inputs: list[Placed]) -> None:
    """Raises WrongArguments where a plan by name leaves most weights whole along an axis of it."""
    sizes = [
        (traced.program.values[v].size * traced.program.values[v].itemsize, place)
        for role, v, place in zip(traced.roles, traced.program.inputs, inputs)
        if role.kind in ("params", "state") and len(place) > 1
    ]
    total = sum(n for n, _ in sizes)
    for axis, parts in mesh.items():
        done = sum(n for n, place in sizes if any(axis in axes for axes in place))
        share = done / max(total, 1)
        named = plan if isinstance(plan, str) else ""
        used = "fsdp" in named if axis in NAMES["fsdp"] else "tp" in named
        if used and parts > 1 and done < DIVIDED * total:
            raise WrongArguments(
                f'plan "{plan}" divides {share:.0%} of the weights over {parts} chips',
                where=f"mesh {mesh}, axis {axis}",
                why="heads, features and vocabulary are divided where their numbers are multiples "
                f"of {parts}",
                do="take a power of two for the axis, or another plan",
            )
