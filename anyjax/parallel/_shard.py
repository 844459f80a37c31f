"""A model on a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from anyjax.jaxprs import ClosedJaxpr, DebugInfo
from anyjax.model import Model
from anyjax.parallel.forward import Forward
from anyjax.parallel.plans import packed, plans
from anyjax.parallel.plans.axes import current_mesh
from anyjax.parallel.plans.plans import Plan
from anyjax.takes_model import takes_model


@takes_model
def shard(
    model: Model,
    mesh: Mesh | None = None,
    plan: Plan = "tp",
    *args: Any,
    rng: jax.Array | None = None,
    **kwargs: Any,
) -> Model:
    """Divides a model's weights over a mesh; XLA adds the communication.

    ``"tp"`` follows the plan that the model's class brings along (most of transformers' language
    models do); for others it is derived from the traced program: which product feeds which, heads
    of attentions included. ``"fsdp"`` divides the largest dimension of each parameter that the axis
    divides; ``"tp+fsdp"`` does both. On a mesh with an axis named "expert", stacked weights of
    experts are divided over it. ``"sequence"``, also beside others, says that the mesh has an axis
    for the length of inputs, which ``anyjax.parallel.place`` divides over it: keys and values are
    gathered for each attention, and whole activations only where a model merges rows and length.
    ``jax.jit``, ``grad``, ``generate`` and ``anyjax.train`` work as without a mesh, Auto or
    Explicit.

    Args:
      model: any Model.
      mesh: for "tp" an axis named "model", "tp" or "tensor", for "fsdp" one named "fsdp" or "data",
        for "sequence" one named so, or "context"; a mesh of one axis may have any other name.
        By default the mesh of ``jax.set_mesh``.
      plan: "tp", "fsdp" and "sequence", or some of them joined by "+", or rules {regular
        expression: PartitionSpec}: the first that is found in a name; what no rule names is
        replicated. Numbers and scales of a quantized matrix lie as the matrix would.
      *args: an example call, where a plan has to be derived and the model was not
        called yet. Shapes and dtypes count.
      rng: the key of that call, where it draws random numbers.
      **kwargs: its arguments by name.

    Returns:
      A Model on the mesh. Of its state, matrices are divided like params; all else is on every
      device.

    Raises:
      WrongArguments: no such plan, a mesh without its axis, rules that do not divide an array,
        a division that cuts the blocks of a quantized one, or no example to derive from.

    Example:
      >>> import jax, numpy as np, torch
      >>> layers = torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
      >>> model = anyjax.from_torch(torch.nn.Sequential(*layers))
      >>> mesh = jax.make_mesh((jax.device_count(),), ("model",))
      >>> there = anyjax.parallel.shard(model, mesh, "tp", np.ones((4, 8), np.float32))
      >>> {name: array.sharding.spec for name, array in there.params.items()}["0.weight"]
      P('model',)
    """
    mesh = current_mesh(mesh)
    weight_specs = specs(model, mesh, plan, args, kwargs, rng)
    params, state = (
        plans.shard_arrays(arrays, mesh, weight_specs) for arrays in (model.params, model.state)
    )
    return model.with_params(params).with_state(state)


def specs(
    model: Model,
    mesh: Mesh,
    plan: Plan,
    args: tuple = (),
    kwargs: dict | None = None,
    rng: jax.Array | None = None,
    fits: plans.Fits = plans.all_fit,
) -> dict[str, PartitionSpec]:
    """Returns a spec for each weight of a model; see ``shard``, for ``fits`` ``plans.specs``."""
    if groups := vars(model.source).get("groups", ()):  # stacks of layers, along which none is cut
        rows = specs(unrolled(model), mesh, plan, args, kwargs, rng)
        stacks = {g.name: PartitionSpec(None, *rows[g.members[0]]) for g in groups}
        return {
            k: stacks[k] if k in stacks else rows[k] for k in weights(model) if k in stacks | rows
        }
    arrays = weights(model)
    forms = {form.name: form for form in vars(model.source).get("packed", ())}
    part_names = {part for form in forms.values() for part in form.parts}
    shapes = {k: x for k, x in arrays.items() if k not in part_names}
    shapes |= {k: jax.ShapeDtypeStruct(form.shape, form.dtype) for k, form in forms.items()}
    model_plan, paths = {}, {}
    if hasattr(model.source, "own_plan"):  # torch's
        model_plan, paths = model.source.own_plan()

    @lru_cache(None)
    def jaxpr() -> ClosedJaxpr:
        return weights_jaxpr(model, arrays, Forward.of(model, args, kwargs, rng))

    def derive(rule: Callable, shards: int) -> dict[str, int]:
        dims = rule(arrays, jaxpr(), [*arrays], shards)
        numbers = {name: dims.get(form.parts[0]) for name, form in forms.items()}
        matrix_dims = {name: 1 - i for name, i in numbers.items() if i is not None}
        return {k: i for k, i in dims.items() if k not in part_names} | matrix_dims

    weight_specs = plans.specs(
        shapes,
        mesh,
        plan,
        paths={k: paths.get(k, [k]) for k in shapes},
        model_plan=model_plan,
        derive=derive,
        fits=lambda k, *division: (
            packed.fits(forms[k], *division) if k in forms else fits(k, *division)
        ),
    )
    for name, form in forms.items():
        weight_specs |= packed.part_specs(form, weight_specs.pop(name), mesh)
    return weight_specs


def unrolled(model: Model) -> Model:
    """Returns the model with a param for each layer; large arrays as shapes and dtypes."""
    shape = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    cut = lambda x, i: x[i] if x.ndim <= 2 and hasattr(x, "__getitem__") else shape(x)
    source: Any = model.source
    return Model(source.unstack(model.params, cut), source.unstack(model.state, cut), source.base)


def weights(model: Model) -> dict[str, Any]:
    """Returns the params and the matrices in the state.

    Those are weights that are not trained (as below an adapter) or quantized.
    """
    is_number = lambda x: jnp.issubdtype(x.dtype, jnp.inexact) or x.dtype in (jnp.int8, jnp.uint8)
    is_matrix = lambda x: x.ndim > 1 and is_number(x)
    is_weight = lambda x: is_matrix(x) or isinstance(x, jax.ShapeDtypeStruct)  # not read yet
    return model.params | {k: x for k, x in model.state.items() if is_weight(x)}


def weights_jaxpr(model: Model, weight_arrays: Mapping[str, Any], forward: Forward) -> ClosedJaxpr:
    """Returns the model's jaxpr as a function of its weights, then of the call's arrays.

    The call's arrays are constants while it is traced, as their values may decide shapes; those
    that are read become inputs afterwards.
    """
    call = [jnp.asarray(x) for x in forward.arrays]

    def forward_of_weights(*arrays):
        by_name = dict(zip(weight_arrays, arrays))
        params = {k: by_name[k] for k in model.params}
        state = {k: by_name.get(k, x) for k, x in model.state.items()}
        return forward(params, state, call)

    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in weight_arrays.values())
    closed = jax.make_jaxpr(forward_of_weights)(*shapes)
    call_ids = {id(x) for x in call}
    pairs = [*zip(closed.jaxpr.constvars, closed.consts)]
    call_vars = [v for v, x in pairs if id(x) in call_ids]
    constants = [(v, x) for v, x in pairs if id(x) not in call_ids]
    jaxpr = closed.jaxpr.replace(
        constvars=[v for v, _ in constants],
        invars=[*closed.jaxpr.invars, *call_vars],
        debug_info=DebugInfo("shard", "weights", None, None),
    )
    return ClosedJaxpr(jaxpr, [x for _, x in constants])
