"""Fresh params from a key: what initialisers of the source draw, beside what none of them makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from anyjax import warn_once
from anyjax.calls import explicit_mesh
from anyjax.calls.rng import check_key
from anyjax.errors import NoInitialiser, Unsupported

Arrays: TypeAlias = dict[str, Any]
Build: TypeAlias = Callable[[], Any] | None


def init(model: Any, rng: jax.Array, build: Build) -> tuple[Arrays, Arrays]:
    """``model.init(rng, mutable=True, build=build)``."""
    check_key(rng)
    new = drawn(model, rng, build)
    if model.params and not new.keys() & model.params.keys():
        raise Unsupported(
            f"fresh params of {model.source.name} from {model.source.framework}",
            why="no initialiser makes any of them: programs that were saved or exported have "
            "none, nor have adapters and packed weights",
            do="call init on the model that the framework's own module gives, with build=Net where "
            "a torch module draws in its constructor; or model.with_params(params)",
        )
    return beside_kept(model, new)


def fresh(model: Any, rng: jax.Array) -> tuple[Arrays, Arrays]:
    """Returns (params, state) as the source's own initialisers make them from a key; all are kept
    where there are no initialisers.

    Example:
      >>> import torch
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> params, _ = fresh(model, jax.random.key(0))
      >>> bool((params["weight"] != model.params["weight"]).all()), params["bias"].shape
      (True, (2,))
    """
    return beside_kept(model, drawn(model, rng) if model.params else {})


def drawn(model: Any, rng: jax.Array, build: Build = None) -> Arrays:
    """Returns what initialisers make, each array divided over devices as the model's own is: of
    one on a mesh no device draws more than its part.
    """
    arrays = {**model.params, **model.state}
    make = lambda params, state, rng: model.source.initial(params, state, rng, build)
    if any(isinstance(x, jax.core.Tracer) for x in (rng, *arrays.values())):
        return make(model.params, model.state, rng)
    on_mesh = {k: x for k, x in arrays.items() if isinstance(x, jax.Array) and _is_divided(x)}
    if not on_mesh:
        return make(model.params, model.state, rng)
    with explicit_mesh.without_explicit_axes((model.params, model.state)) as (params, state):
        places = {k: {**params, **state}[k].sharding for k in on_mesh}
        divide = lambda k, x: jax.lax.with_sharding_constraint(x, places[k]) if k in places else x
        divided = lambda *inputs: {k: divide(k, x) for k, x in make(*inputs).items()}
        new = jax.jit(divided)(params, state, rng)
    return {k: jax.device_put(x, arrays[k].sharding) if k in on_mesh else x for k, x in new.items()}


def beside_kept(model: Any, new: Arrays) -> tuple[Arrays, Arrays]:
    """Returns (params, state) with the new arrays; says once which params none of them replaces."""
    kept_names = [k for k in model.params if k not in new]
    if kept_names and not model.source.cache.notes.setdefault(NoInitialiser, False):
        model.source.cache.notes[NoInitialiser] = True
        count = f" and {len(kept_names) - 3} more" if len(kept_names) > 3 else ""
        warn_once.warn(
            f"no initialiser of {model.source.name} makes {', '.join(kept_names[:3])}{count}: "
            "the model's own values are kept, whatever the key",
            NoInitialiser,
        )
    values = {**model.params, **model.state, **new}
    return {k: values[k] for k in model.params}, {k: values[k] for k in model.state}


def _is_divided(array: jax.Array) -> bool:
    return len(array.sharding.device_set) > 1
