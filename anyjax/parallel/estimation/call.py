"""A call to estimate: a function of arrays, the roles of its arrays, and its traced program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec

from anyjax.dtypes import shape_of
from anyjax.jaxprs import ClosedJaxpr, keeping_barriers
from anyjax.model import Model
from anyjax.parallel.batches import spec_of
from anyjax.parallel.estimation.cost.work import count_work
from anyjax.parallel.estimation.divide.nodes import Program, Value, program_of
from anyjax.parallel.estimation.divide.partition import Spec, divide, replicated
from anyjax.parallel.forward import Forward

KINDS = ("params", "optimizer", "state", "cache", "inputs")


class Role(NamedTuple):
    """The role of an array: one of ``KINDS``, and the weight that it is divided like."""

    kind: str
    name: str = ""


@dataclass(frozen=True)
class Call:
    """A function that is traced with shapes alone.

    Attributes:
      what: "forward", "train", "prefill" or "decode".
      model: the model that the plan is for; its arrays may be shapes and dtypes.
      function: ``function(*arguments)``.
      arguments: pytrees of shapes and dtypes.
      role: returns the role of the array at a path of ``arguments``.
      aliases: results that take the place of arguments, by their numbers: {argument: result}.
      tokens: the number of tokens of all rows.
      without_remat: the function without recomputation; its FLOPs count as useful.
      example: (args, kwargs) to derive a plan from.
      source: for decoding, the prefill, whose cache the steps take as it is divided.
      options: of the compiler.
      notes: on what the figures leave out.
    """

    what: str
    model: Model
    function: Callable
    arguments: tuple
    role: Callable[[tuple], Role]
    aliases: dict[int, int] = field(default_factory=dict)
    tokens: int = 0
    without_remat: Callable | None = None
    example: tuple = ((), {})
    source: Traced | None = None
    options: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Traced:
    """A call's traced program.

    Attributes:
      call: the call.
      program: the program of all devices together.
      roles: the roles of its inputs.
      leaves: the leaves of the call's arguments.
      outputs: for each output the input that it replaces, or None.
      useful: FLOPs of matrix products without recomputation, on all devices together.
      shape: the result's shapes, a pytree.
      closed: the jaxpr that it was traced to.
    """

    call: Call
    program: Program
    roles: list[Role]
    leaves: list[Any]
    outputs: list[int | None]
    useful: float
    shape: Any
    closed: ClosedJaxpr


def trace_call(call: Call) -> Traced:
    """Traces a call; nothing is allocated."""
    closed, shape = jax.make_jaxpr(call.function, return_shape=True)(*call.arguments)
    paths = jax.tree_util.tree_flatten_with_path(call.arguments)[0]
    roles = [call.role(path) for path, _ in paths]
    program = program_of(closed)
    roles += [Role("state")] * (len(program.inputs) - len(roles))
    once = program if call.without_remat is None else _program(call.without_remat, call.arguments)
    input_specs = [replicated(once.values[v]) for v in once.inputs]
    useful = sum(count_work(divide(once, {}, input_specs)).products.values())
    leaves = [x for _, x in paths]
    return Traced(call, program, roles, leaves, _replaced(call, shape), useful, shape, closed)


def _program(function: Callable, arguments: tuple) -> Program:
    return program_of(jax.make_jaxpr(function)(*arguments))


def _replaced(call: Call, shape: Any) -> list[int | None]:
    """Returns for each output the number of the input that it replaces."""
    counts = [len(jax.tree.leaves(x)) for x in call.arguments]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    results = shape if call.aliases else (shape,)
    replaced: list[int | None] = []
    for number, result in enumerate(results):
        argument = next((a for a, r in call.aliases.items() if r == number), None)
        size = len(jax.tree.leaves(result))
        if argument is not None:
            assert size == counts[argument], (
                "a result has the structure of the argument it replaces"
            )
        replaced += [None if argument is None else starts[argument] + i for i in range(size)]
    return replaced


def spec_from_partition(spec: PartitionSpec, ndim: int, mesh: AbstractMesh | None = None) -> Spec:
    """Returns a PartitionSpec as axes by dimension; axes of one device are left out.

    Example:
      >>> spec_from_partition(jax.sharding.PartitionSpec(None, ("a", "b")), 3)
      ((), ('a', 'b'), ())
    """
    entries = (*spec, *[None] * ndim)[:ndim]
    axes = (() if p is None else (p,) if isinstance(p, str) else tuple(p) for p in entries)
    return tuple(tuple(a for a in dim if mesh is None or mesh.shape[a] > 1) for dim in axes)


def forward_call(
    model: Model, args: tuple = (), kwargs: dict | None = None, rng: jax.Array | None = None
) -> Call:
    """Returns the forward pass of these arguments, or of an example of the model's source."""
    function = Forward.of(model, args, kwargs, rng)
    arguments = (model.params, model.state, function.arrays)
    tokens = next((x.size for x in function.arrays if jnp.issubdtype(x.dtype, jnp.integer)), 0)
    tokens = tokens or next((x.shape[0] for x in function.arrays if x.ndim), 1)

    def role(path: tuple) -> Role:
        kind = ("params", "state", "inputs")[path[0].idx]
        return Role(kind, path[1].key if kind != "inputs" else "")

    return Call(
        "forward",
        model,
        function.__call__,
        jax.tree.map(shape_of, arguments),
        role,
        tokens=tokens,
        example=(args, kwargs or {}),
    )


def train_call(step: Any, state: Any, batch: Any) -> Call:
    """Returns a step of ``anyjax.train.make_step``; ``state`` and ``batch`` may be shapes."""
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
    gradients, without_remat = step.gradients, None
    if gradients.remat:
        once = type(gradients)(gradients.loss_fn, gradients.accumulate, gradients.dtype)
        without_remat = type(step)(
            once, step.tx, step.clipping, step.loss_scale, step.ema, step.donate
        )._step
    return Call(
        "train",
        state.model.eval(),
        step._step,
        (state, jax.tree.map(shape_of, batch)),
        role,
        aliases={0: 0},
        tokens=tokens,
        without_remat=without_remat,
        options=keeping_barriers() if gradients.remat else None,
    )


def specs_of_inputs(
    traced: Traced, mesh: AbstractMesh, specs: dict, caches: list[Spec] | None = None
) -> list:
    """Returns the spec of each input."""
    input_specs, cache_specs = [], iter(caches or [])
    for role, v in zip(traced.roles, traced.program.inputs):
        value = traced.program.values[v]
        # shard leaves vectors of the state on every device
        is_vector = role.kind == "state" and len(value.shape) < 2
        if role.name in specs and not is_vector:
            input_specs.append(spec_from_partition(specs[role.name], len(value.shape), mesh))
        elif role.kind == "cache" and caches is not None:
            input_specs.append(next(cache_specs))
        elif role.kind in ("inputs", "cache"):
            input_specs.append(spec_from_partition(_rows_spec(value, mesh), len(value.shape), mesh))
        else:
            input_specs.append(replicated(value))
    return input_specs


def _rows_spec(value: Value, mesh: AbstractMesh) -> Any:
    return spec_of(jax.ShapeDtypeStruct(value.shape, bool), mesh)
