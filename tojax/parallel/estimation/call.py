"""One call that is estimated: a function of arrays, what each array is, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tojax.dtypes import shape_of
from tojax.jaxprs import keeping_barriers
from tojax.model import Model
from tojax.parallel.batches import spec_of
from tojax.parallel.estimation.cost.work import work
from tojax.parallel.estimation.divide.nodes import Program, program_of
from tojax.parallel.estimation.divide.partition import Placed, divided, whole
from tojax.parallel.forward import Forward

KINDS = ("params", "optimizer", "state", "cache", "inputs")


class Role(NamedTuple):
    """What an array is: one of ``KINDS``, and the name of the weight that it lies with."""

    kind: str
    name: str = ""


@dataclass(frozen=True)
class Call:
    """A function that is traced with shapes alone.

    Attributes:
      what: "forward", "train", "prefill" or "decode".
      model: whose plan it is; its arrays may be shapes and dtypes.
      function: ``function(*arguments)``.
      arguments: pytrees of shapes and dtypes.
      role: what the array at a path of ``arguments`` is.
      again: results that take the place of arguments, by their numbers: {argument: result}.
      tokens: of all rows, that one call reads or makes.
      plain: the function without what is computed twice; what it needs counts as useful.
      example: (args, kwargs) to derive a plan from.
      source: for decoding the prefill, which leaves its cache where the steps find it.
      options: what the compiler is told.
      notes: what its figures leave out.
    """

    what: str
    model: Model
    function: Callable
    arguments: tuple
    role: Callable[[tuple], Role]
    again: dict[int, int] = field(default_factory=dict)
    tokens: int = 0
    plain: Callable | None = None
    example: tuple = ((), {})
    source: Traced | None = None
    options: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Traced:
    """A call's program with names for its inputs.

    Attributes:
      call: what was traced.
      program: of all devices together.
      roles: of its inputs.
      outputs: for each output the input that it replaces, or None.
      useful: FLOPs of matrix products that the call is about, on all devices together.
      shape: of the result, a pytree.
    """

    call: Call
    program: Program
    roles: list[Role]
    leaves: list[Any]
    outputs: list[int | None]
    useful: float
    shape: Any


def trace(call: Call) -> Traced:
    """The program of a call; nothing is allocated."""
    closed, shape = jax.make_jaxpr(call.function, return_shape=True)(*call.arguments)
    paths = jax.tree_util.tree_flatten_with_path(call.arguments)[0]
    roles = [call.role(path) for path, _ in paths]
    program = program_of(closed)
    roles += [Role("state")] * (len(program.inputs) - len(roles))
    plain = program if call.plain is None else _program(call.plain, call.arguments)
    places = [whole(plain.values[v]) for v in plain.inputs]
    useful = sum(work(divided(plain, {}, places)).products.values())
    leaves = [x for _, x in paths]
    return Traced(call, program, roles, leaves, _replaced(call, shape), useful, shape)


def _program(function: Callable, arguments: tuple) -> Program:
    return program_of(jax.make_jaxpr(function)(*arguments))


def _replaced(call: Call, shape: Any) -> list[int | None]:
    """For each output the number of the input whose place it takes."""
    counts = [len(jax.tree.leaves(x)) for x in call.arguments]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    results = shape if call.again else (shape,)
    found: list[int | None] = []
    for number, part in enumerate(results):
        at = next((a for a, r in call.again.items() if r == number), None)
        size = len(jax.tree.leaves(part))
        if at is not None:
            assert size == counts[at], "what comes back has the structure of what was given"
        found += [None if at is None else starts[at] + i for i in range(size)]
    return found


def placed(spec: Any, ndim: int, mesh: Any = None) -> Placed:
    """A PartitionSpec as axes by dimension; axes of one device divide nothing.

    Example:
      >>> placed(jax.sharding.PartitionSpec(None, ("a", "b")), 3)
      ((), ('a', 'b'), ())
    """
    parts = (*spec, *[None] * ndim)[:ndim]
    axes = (() if p is None else (p,) if isinstance(p, str) else tuple(p) for p in parts)
    return tuple(tuple(a for a in dim if mesh is None or mesh.shape[a] > 1) for dim in axes)


def forward(model: Model, args: tuple = (), kwargs: Any = None, rng: Any = None) -> Call:
    """The forward pass of this call, or of one that the model's source makes up."""
    run = Forward.of(model, args, kwargs, rng)
    arguments = (model.params, model.state, run.arrays)
    tokens = next((x.size for x in run.arrays if jnp.issubdtype(x.dtype, jnp.integer)), 0)
    tokens = tokens or next((x.shape[0] for x in run.arrays if x.ndim), 1)

    def role(path: tuple) -> Role:
        kind = ("params", "state", "inputs")[path[0].idx]
        return Role(kind, path[1].key if kind != "inputs" else "")

    return Call(
        "forward", model, run.__call__, jax.tree.map(shape_of, arguments), role, tokens=tokens,
        example=(args, kwargs or {}),
    )  # fmt: skip


def step(step: Any, state: Any, batch: Any) -> Call:
    """A training step of ``tojax.train.make_step``; ``state`` and ``batch`` may be shapes."""
    state = jax.eval_shape(step.prepared, state)
    names = {k: x.shape for k, x in state.params.items()}
    sizes = {jax.tree_util.keystr(p): x for p, x in jax.tree_util.tree_leaves_with_path(state)}

    def role(path: tuple) -> Role:
        if path[0].idx:
            return Role("inputs")
        name = next((k.key for k in reversed(path) if hasattr(k, "key")), "")
        fields = [getattr(k, "name", "") for k in path]
        if fields[1] == "model":
            return Role(fields[2], name)
        same = name in names and sizes[jax.tree_util.keystr(path[1:])].shape == names[name]
        return Role("optimizer" if fields[1] in ("opt_state", "ema") else "state", name * same)

    leaves = jax.tree.leaves(batch)
    counts = (x.size for x in leaves if jnp.issubdtype(x.dtype, jnp.integer))
    tokens = next(counts, leaves[0].shape[0])
    plain = None
    if step.gradients.remat:
        plain = type(step)(
            type(step.gradients)(
                step.gradients.loss_fn, step.gradients.accumulate, step.gradients.dtype
            ),
            step.tx, step.clipping, step.loss_scale, step.ema, step.donate,
        )._step  # fmt: skip
    return Call(
        "train", state.model.eval(), step._step, (state, jax.tree.map(shape_of, batch)), role,
        {0: 0}, tokens, plain, options=keeping_barriers() if step.gradients.remat else None,
    )  # fmt: skip


def places(traced: Traced, mesh: Any, specs: dict, caches: list[Placed] | None = None) -> list:
    """Where each input lies."""
    found, cached = [], iter(caches or [])
    for role, v in zip(traced.roles, traced.program.inputs):
        value = traced.program.values[v]
        vector = role.kind == "state" and len(value.shape) < 2  # on every device, as shard has it
        if role.name in specs and not vector:
            found.append(placed(specs[role.name], len(value.shape), mesh))
        elif role.kind == "cache" and caches is not None:
            found.append(next(cached))
        elif role.kind in ("inputs", "cache"):
            found.append(placed(_rows(value, mesh), len(value.shape), mesh))
        else:
            found.append(whole(value))
    return found


def _rows(value: Any, mesh: Any) -> Any:
    return spec_of(jax.ShapeDtypeStruct(value.shape, bool), mesh)
