"""Memory, arithmetic and communication of a model on chips that need not be there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType

from anyjax.chips.figures import Chip, slice_of
from anyjax.errors import WrongArguments
from anyjax.model import Model
from anyjax.numerics.mesh_axes import NAMES, batch_axes
from anyjax.parallel._shard import specs, weights
from anyjax.parallel.estimation.call import (
    KINDS,
    Call,
    Traced,
    forward_call,
    specs_of_inputs,
    trace_call,
    train_call,
)
from anyjax.parallel.estimation.compiled import compile_call
from anyjax.parallel.estimation.cost.fusion import fuse
from anyjax.parallel.estimation.cost.lifetimes import find_peak
from anyjax.parallel.estimation.cost.work import count_work, time_of
from anyjax.parallel.estimation.divide.combine import combine
from anyjax.parallel.estimation.divide.nodes import program_of
from anyjax.parallel.estimation.divide.partition import Divided, Spec, divide
from anyjax.parallel.estimation.report import Communication, Estimate
from anyjax.parallel.plans.plans import BY_NAME, Rules
from anyjax.takes_model import takes_model

Plan = str | Rules
TENSOR = 8  # devices that share a layer by default: one host, or one node
MIN_DIVIDED = 0.5  # of the weights' bytes: a plan that divides less is refused
MAX_CHIPS = 4096  # in the search for what fits


@takes_model
def estimate(
    model: Model,
    chips: str,
    plan: Plan = "tp+fsdp",
    *args: Any,
    mesh: dict[str, int] | None = None,
    step: Any = None,
    state: Any = None,
    compile: bool | None = None,
    rng: jax.Array | None = None,
    **kwargs: Any,
) -> Estimate:
    """Estimates what a call of the model needs on each chip: memory, FLOPs, communication, time.

    Nothing is allocated: the model's arrays and those of the call may be ``ShapeDtypeStruct``. The
    traced program is divided over the mesh operation by operation. Its peak memory is that of its
    order, with elementwise operations fused into their users. Times assume the chip's published
    rates (``anyjax/chips/figures.py``), all reached at the same time: no real run is faster.

    Args:
      model: any Model; its arrays may be shapes and dtypes.
      chips: such as "v6e-8", "h100-16"; "cpu-8" for eight virtual CPU devices.
      plan: "tp", "fsdp", "tp+fsdp", or rules, as for ``shard``.
      *args: the call; of a training step, the batch.
      rng: the key of that call, where it draws random numbers.
      **kwargs: its arguments by name.
      mesh: sizes of its axes, {"data": 2, "model": 4}; by default one axis for "tp" and "fsdp", at
        most 8 chips along "model" for both.
      step, state: a step of ``anyjax.train.make_step`` and the ``TrainState`` that it takes; then a
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
      >>> model = anyjax.from_torch(torch.nn.Linear(512, 512))
      >>> told = anyjax.parallel.estimate(model, "v6e-8", "tp", np.ones((16, 512), np.float32))
      >>> told.memory["params"] * 8 == 512 * 513 * 4, told.fits
      (True, True)
    """
    if step is not None and (state is None or len(args) != 1 or kwargs):
        raise WrongArguments(
            f"a training step of {len(args) + len(kwargs)} arguments"
            + (" without its state" if state is None else ""),
            where="anyjax.parallel.estimate",
            why="it takes a TrainState and one batch",
            do="write estimate(model, chips, plan, batch, step=step, state=state)",
        )
    if step is not None:
        call = train_call(step, state, args[0])
    else:
        call = forward_call(model, args, kwargs, rng)
    return estimate_traced(trace_call(call), chips, plan, mesh, compile=compile)


def estimate_traced(
    traced: Traced,
    chips: str,
    plan: Plan = "tp+fsdp",
    mesh: dict[str, int] | None = None,
    *,
    compile: bool | None = None,
    search: bool = True,
    progress: Callable[[str], object] = lambda said: None,
) -> Estimate:
    """Estimates a traced call, see ``estimate``."""
    chip, number = slice_of(chips)
    if chip.name == "cpu":  # which have no kernels
        traced = replace(traced, program=program_of(traced.closed, formulas=True))
    mesh = checked_mesh(mesh, chips, number) or mesh_for(plan, number)
    progress(f"dividing over {', '.join(f'{k}={v}' for k, v in mesh.items())}")
    inputs = input_specs(traced, mesh, plan)
    check_rows(traced, mesh)
    check_plan(traced, mesh, plan, inputs)
    result = evaluate(traced, chip, mesh, plan, inputs)
    if compile or (compile is None and chip.name == "cpu"):
        progress(f"compiling for {number} virtual devices")
        result = replace(result, compiled=compile_call(traced, mesh, inputs))
    if search and result.fits is False:
        progress("looking for what fits")
        result = replace(result, otherwise=_find_fitting(traced, chip, number, plan))
    return result


def input_specs(traced: Traced, mesh: dict[str, int], plan: Plan) -> list[Spec]:
    """Returns the specs of a call's inputs; a decoding step's cache has those of the prefill."""
    call, abstract_mesh = traced.call, abstract_mesh_of(mesh)
    args, kwargs = call.example
    shard_plan: Any = plan
    weight_specs = specs(call.model, abstract_mesh, shard_plan, args, kwargs)
    caches = None
    if call.source is not None:
        prefill = call.source
        divided = divide(
            prefill.program, mesh, input_specs(prefill, mesh, plan), (), weight_mask(prefill)
        )
        output_specs = [
            (divided.specs[v] if v is not None else ()) for v in divided.program.outputs
        ]
        caches = output_specs[-sum(r.kind == "cache" for r in traced.roles) :]
    return specs_of_inputs(traced, abstract_mesh, weight_specs, caches)


def abstract_mesh_of(mesh: dict[str, int]) -> Any:
    """Returns a mesh without devices."""
    kinds = (AxisType.Auto,) * len(mesh)
    return AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=kinds)


def weight_mask(traced: Traced) -> list[bool]:
    """Returns which inputs are weights: operations are divided as their other operands."""
    return [role.kind in ("params", "optimizer", "state") for role in traced.roles]


def divide_call(traced: Traced, mesh: dict[str, int], inputs: list[Spec]) -> Divided:
    """Divides the call's program over the mesh."""
    outputs = [None if i is None else inputs[i] for i in traced.outputs]
    return combine(divide(traced.program, mesh, inputs, outputs, weight_mask(traced)))


def evaluate(
    traced: Traced, chip: Chip, mesh: dict[str, int], plan: Plan, inputs: list[Spec]
) -> Estimate:
    """Returns the estimate of a call whose inputs are divided so."""
    divided = divide_call(traced, mesh, inputs)
    fused = fuse(divided)
    peak, work = find_peak(divided, fused), count_work(divided, fused)
    memory = _argument_memory(traced, divided)
    pairs = zip(divided.program.outputs, traced.outputs)
    outputs = sum(divided.bytes(v) for v, i in pairs if v is not None and i is None)
    seconds_of = lambda kind, axes, size: time_of(
        kind, size, math.prod(mesh[a] for a in axes), chip.reach(axes, mesh)
    )
    communication = tuple(
        Communication(kind, axes, n, size, seconds_of(kind, axes, size))
        for (kind, axes), (n, size) in sorted(work.communication.items())
    )
    call, params = traced.call, traced.call.model.params
    sizes: dict[str, int] = {}
    for x in weights(call.model).values():
        sizes[str(x.dtype)] = sizes.get(str(x.dtype), 0) + math.prod(x.shape)
    packed = vars(call.model.source).get("packed", ())
    products = dict(work.products)
    flops = products or sizes
    return Estimate(
        what=call.what,
        model=call.model.source.name,
        chip=chip,
        count=math.prod(mesh.values()),
        mesh=dict(mesh),
        plan=plan if isinstance(plan, str) else "rules",
        dtype=max(flops, key=lambda d: flops[d], default="float32"),
        weights=sum(math.prod(x.shape) for x in (*params.values(), *packed)),
        memory=memory,
        gradients=memory.get("params", 0) if call.what == "train" else 0,
        outputs=outputs,
        temporaries=peak.temporaries,
        largest=peak.largest,
        products=products,
        others=work.other_flops,
        traffic=work.traffic,
        communication=communication,
        compute=sum(n / chip.rate(dtype) for dtype, n in products.items()),
        moving=work.traffic / chip.bandwidth,
        linking=sum(c.seconds for c in communication),
        tokens=call.tokens,
        useful=traced.useful,
        notes=tuple(_notes(call, chip, divided)),
    )


def _argument_memory(traced: Traced, divided: Divided) -> dict[str, int]:
    """Returns the bytes of arguments on one device, by kind."""
    sizes: dict[str, int] = {}
    for role, v in zip(traced.roles, divided.program.inputs):
        sizes[role.kind] = sizes.get(role.kind, 0) + divided.bytes(v)
    return {k: sizes[k] for k in KINDS if sizes.get(k)}


def _notes(call: Call, chip: Chip, divided: Divided) -> Iterator[str]:
    """Yields notes on what the figures leave out."""
    yield from call.notes
    if chip.devices > 1:
        yield (
            f"JAX has {chip.devices} devices in each {chip.name}, with a part of its memory each: "
            "what lies whole on every device is there as often"
        )
    if divided.unknown:
        yield f"counted as elementwise on whole arrays: {', '.join(sorted(divided.unknown))}"


def mesh_for(plan: Plan, number: int) -> dict[str, int]:
    """Returns the default mesh of a plan.

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


def _find_fitting(traced: Traced, chip: Chip, number: int, plan: Plan) -> tuple[str, int] | None:
    """Returns the plan by name and the smallest power of two of chips that fit; this plan first."""
    if not isinstance(plan, str):
        return None
    names = [plan, *(p for p in BY_NAME if p != plan)]
    for count in _powers(number):
        for name in names:
            mesh = mesh_for(name, count)
            if name != "tp+fsdp" and count == number and name == plan:
                continue
            try:
                check_rows(traced, mesh)
                inputs = input_specs(traced, mesh, name)
                check_plan(traced, mesh, name, inputs)
            except WrongArguments:
                continue
            if _argument_bytes(traced, mesh, inputs) > chip.memory:
                continue
            if evaluate(traced, chip, mesh, name, inputs).fits:
                return name, count
    return None


def _powers(number: int) -> Iterator[int]:
    """Yields the number, and powers of two above it."""
    yield number
    count = 1 << number.bit_length()
    while count <= MAX_CHIPS:
        yield count
        count *= 2


def _argument_bytes(traced: Traced, mesh: dict[str, int], inputs: list[Spec]) -> int:
    """Returns the bytes of the arguments alone."""
    total = 0
    for v, place in zip(traced.program.inputs, inputs):
        value = traced.program.values[v]
        shards = math.prod(mesh[a] for axes in place for a in axes)
        total += math.ceil(value.size * value.itemsize / shards)
    return total


def checked_mesh(mesh: dict[str, int] | None, chips: str, number: int) -> dict[str, int] | None:
    """Returns the mesh with its data axes first.

    Raises:
      WrongArguments: the mesh has another number of chips.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mapping):
        raise WrongArguments(
            f"mesh={mesh!r}",
            where="anyjax.parallel.estimate",
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
    data_axes = [k for k in mesh if k in NAMES["fsdp"]]
    return {k: mesh[k] for k in (*data_axes, *(k for k in mesh if k not in data_axes))}


def check_rows(traced: Traced, mesh: dict[str, int]) -> None:
    """Raises WrongArguments where no input's rows divide over the data axes."""
    axes = batch_axes(abstract_mesh_of(mesh))
    shards = math.prod(mesh[a] for a in axes)
    rows = [
        traced.program.values[v].shape[0]
        for role, v in zip(traced.roles, traced.program.inputs)
        if role.kind == "inputs" and traced.program.values[v].shape
    ]
    if shards > 1 and rows and all(n % shards for n in rows):
        raise WrongArguments(
            f"a batch of {rows[0]} does not divide over {shards} chips",
            where=f"mesh {mesh}, axis {', '.join(axes)}",
            why="each chip along the data axis takes the same number of rows",
            do=f"take a batch that is a multiple of {shards}, or a smaller data axis",
        )


def check_plan(traced: Traced, mesh: dict[str, int], plan: Plan, inputs: list[Spec]) -> None:
    """Raises WrongArguments where a plan by name leaves most weights undivided along its axis."""
    sizes = [
        (traced.program.values[v].size * traced.program.values[v].itemsize, place)
        for role, v, place in zip(traced.roles, traced.program.inputs, inputs)
        if role.kind in ("params", "state") and len(place) > 1
    ]
    total = sum(n for n, _ in sizes)
    for axis, shards in mesh.items():
        divided_size = sum(n for n, place in sizes if any(axis in axes for axes in place))
        share = divided_size / max(total, 1)
        plan_name = plan if isinstance(plan, str) else ""
        used = "fsdp" in plan_name if axis in NAMES["fsdp"] else "tp" in plan_name
        if used and shards > 1 and divided_size < MIN_DIVIDED * total:
            raise WrongArguments(
                f'plan "{plan}" divides {share:.0%} of the weights over {shards} chips',
                where=f"mesh {mesh}, axis {axis}",
                why="heads, features and vocabulary are divided where their numbers are multiples "
                f"of {shards}",
                do="take a power of two for the axis, or another plan",
            )
