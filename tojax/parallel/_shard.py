"""A model on a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tojax.jaxprs import ClosedJaxpr, DebugInfo
from tojax.model import Model
from tojax.parallel.forward import Forward
from tojax.parallel.plans import packed, plans
from tojax.parallel.plans.axes import current
from tojax.parallel.plans.plans import Plan


def shard(
    model: Model,
    mesh: Mesh | None = None,
    plan: Plan = "tp",
    *args: Any,
    rng: Any = None,
    **kwargs: Any,
) -> Model:
    """The model with its weights divided over a mesh; XLA adds the communication.

    ``"tp"`` follows the plan that the model's class brings along (most of transformers' language
    models do); for others it is derived from the traced program: which product feeds which, heads
    of attentions included. ``"fsdp"`` divides the largest dimension of each parameter that the axis
    divides; ``"tp+fsdp"`` does both. On a mesh with an axis named "expert", stacked weights of
    experts are divided over it. ``"sequence"``, also beside others, says that the mesh has an axis
    for the length of inputs, which ``tojax.parallel.place`` divides over it: keys and values are
    gathered for each attention, and whole activations only where a model merges rows and length.
    ``jax.jit``, ``grad``, ``generate`` and ``tojax.train`` work as without a mesh, Auto or
    Explicit.

    Args:
      model: any Model.
      mesh: for "tp" an axis named "model", "tp" or "tensor", for "fsdp" one named "fsdp" or "data",
        for "sequence" one named so, or "context"; a mesh of one axis may have any other name.
        By default the mesh of ``jax.set_mesh``.
      plan: "tp", "fsdp" and "sequence", or some of them joined by "+", or rules {regular
        expression: PartitionSpec}: the first that is found in a name; what no rule names is
        replicated. Numbers and scales of a quantized matrix lie as the matrix would.
      *args, rng, **kwargs: an example call, where a plan has to be derived and the model was not
        called yet. Shapes and dtypes count.

    Returns:
      A Model on the mesh. Of its state, matrices are divided like params; all else is on every
      device.

    Raises:
      WrongArguments: no such plan, a mesh without its axis, rules that do not divide an array,
        a division that cuts the blocks of a quantized one, or no example to derive from.

    Example:
      >>> import jax, numpy as np, torch
      >>> layers = torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
      >>> model = tojax.from_torch(torch.nn.Sequential(*layers))
      >>> mesh = jax.make_mesh((jax.device_count(),), ("model",))
      >>> there = tojax.parallel.shard(model, mesh, "tp", np.ones((4, 8), np.float32))
      >>> {name: array.sharding.spec for name, array in there.params.items()}["0.weight"]
      P('model',)
    """
    mesh = current(mesh)
    found = specs(model, mesh, plan, args, kwargs, rng)
    params, state = (plans.sharded(held, mesh, found) for held in (model.params, model.state))
    return model.with_params(params).with_state(state)


def specs(
    model: Model,
    mesh: Mesh,
    plan: Plan,
    args: tuple = (),
    kwargs: dict | None = None,
    rng: Any = None,
    fits: plans.Fits = plans.all_fit,
) -> dict[str, PartitionSpec]:
    """A spec for each of the model's weights, see ``shard`` and, for ``fits``, ``plans.specs``."""
    if groups := vars(model.source).get(
        "groups", ()
    ):  # stacks of layers: a layer is on all devices
        rows = specs(unrolled(model), mesh, plan, args, kwargs, rng)
        stacks = {g.name: PartitionSpec(None, *rows[g.members[0]]) for g in groups}
        return {
            k: stacks[k] if k in stacks else rows[k] for k in weights(model) if k in stacks | rows
        }
    held = weights(model)
    forms = {form.name: form for form in vars(model.source).get("packed", ())}
    small = {part for form in forms.values() for part in form.parts}
    shapes = {k: x for k, x in held.items() if k not in small}
    shapes |= {k: jax.ShapeDtypeStruct(form.shape, form.dtype) for k, form in forms.items()}
    own, paths = {}, {}
    if hasattr(model.source, "own_plan"):  # torch's
        own, paths = model.source.own_plan()

    @lru_cache(None)
    def jaxpr() -> ClosedJaxpr:
        return program(model, held, Forward.of(model, args, kwargs, rng))

    def derive(rule: Callable, parts: int) -> dict[str, int]:
        found = rule(held, jaxpr(), [*held], parts)
        numbers = {name: found.get(form.parts[0]) for name, form in forms.items()}
        turned = {name: 1 - i for name, i in numbers.items() if i is not None}
        return {k: i for k, i in found.items() if k not in small} | turned

    found = plans.specs(
        shapes,
        mesh,
        plan,
        paths={k: paths.get(k, [k]) for k in shapes},
        own=own,
        derive=derive,
        fits=lambda k, *given: packed.fits(forms[k], *given) if k in forms else fits(k, *given),
    )
    for name, form in forms.items():
        found |= packed.turned(form, found.pop(name), mesh)
    return found


def unrolled(model: Model) -> Model:
    """The model with a param for each layer; of large arrays only shapes and dtypes."""
    cut = lambda x, i: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) if x.ndim > 2 else x[i]
    source: Any = model.source
    return Model(source.unstack(model.params, cut), source.unstack(model.state, cut), source.base)


def weights(model: Model) -> dict[str, Any]:
    """The params, and matrices in the state: weights that are not trained, as beside an adapter,
    and quantized ones.
    """
    number = lambda x: jnp.issubdtype(x.dtype, jnp.inexact) or x.dtype in (jnp.int8, jnp.uint8)
    matrix = lambda x: x.ndim > 1 and number(x)
    held = lambda x: matrix(x) or isinstance(x, jax.ShapeDtypeStruct)  # not read yet
    return model.params | {k: x for k, x in model.state.items() if held(x)}


def program(model: Model, held: Mapping[str, Any], forward: Forward) -> ClosedJaxpr:
    """The model's jaxpr by its weights, then those of the call's arrays that it reads. They are
    constants while it is traced: their values may decide shapes.
    """
    call = [jnp.asarray(x) for x in forward.arrays]

    def run(*arrays):
        given = dict(zip(held, arrays))
        params = {k: given[k] for k in model.params}
        state = {k: given.get(k, x) for k, x in model.state.items()}
        return forward(params, state, call)

    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in held.values())
    closed = jax.make_jaxpr(run)(*shapes)
    given = {id(x) for x in call}
    pairs = [*zip(closed.jaxpr.constvars, closed.consts)]
    read = [v for v, x in pairs if id(x) in given]
    rest = [(v, x) for v, x in pairs if id(x) not in given]
    jaxpr = closed.jaxpr.replace(
        constvars=[v for v, _ in rest],
        invars=[*closed.jaxpr.invars, *read],
        debug_info=DebugInfo("shard", "weights", None, None),
    )
    return ClosedJaxpr(jaxpr, [x for _, x in rest])
