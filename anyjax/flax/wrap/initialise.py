"""Fresh weights from a key: the source framework's own initialisers, run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax import warn_once
from anyjax.errors import NoInitialiser
from anyjax.flax.wrap import keras_initialisers, torch_initialisers
from anyjax.model import Model

Arrays = dict[str, Any]
RERUN: dict[str, Callable[[Any, int], Mapping[str, np.ndarray]]] = {
    "torch": torch_initialisers.rerun,
    "tensorflow": keras_initialisers.rerun,
}


def fresh(model: Model, key: jax.Array) -> tuple[Arrays, Arrays]:
    """Returns (params, state) as the source's own initialisers make them from a key. Arrays without
    an initialiser keep the model's value, and a warning says so once.

    The same key gives the same weights. Under ``jax.jit`` the initialisers run in a callback on the
    host, once for each run of the program; ``jax.eval_shape`` runs none.

    Example:
      >>> import torch
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> params, _ = fresh(model, jax.random.key(0))
      >>> bool((params["weight"] != model.params["weight"]).all()), params["bias"].shape
      (True, (2,))
    """
    if not model.params:
        return {}, dict(model.state)
    bits = jax.random.bits(key, (2,), "uint32")
    arrays = {**model.params, **model.state}
    host = lambda bits: _host(model, arrays, bits)
    if isinstance(bits, jax.core.Tracer):
        shapes = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in arrays.items()}
        flags = {k: jax.ShapeDtypeStruct((), bool) for k in arrays}
        new, is_new = jax.pure_callback(host, (shapes, flags), bits, vmap_method="sequential")
        values = {k: jnp.where(is_new[k], new[k], x) for k, x in arrays.items()}
    else:
        new, is_new = host(bits)
        values = {k: jnp.asarray(new[k]) if is_new[k] else x for k, x in arrays.items()}
    return {k: values[k] for k in model.params}, {k: values[k] for k in model.state}


def _host(model: Model, arrays: Arrays, bits) -> tuple[Arrays, Arrays]:
    """Returns an array for each name, and for each whether an initialiser made it."""
    high, low = (int(x) for x in np.asarray(bits))
    rerun = RERUN.get(model.source.framework)
    new = rerun(model.source, high << 31 ^ low) if rerun and model.source.module is not None else {}
    _warn_kept(model, [k for k in model.params if k not in new])
    fit = lambda k, x: np.asarray(new[k], x.dtype) if k in new else np.zeros(x.shape, x.dtype)
    return {k: fit(k, x) for k, x in arrays.items()}, {k: np.bool_(k in new) for k in arrays}


def _warn_kept(model: Model, names: list[str]) -> None:
    """Warns once that these params have no initialiser."""
    if not names or model.source.cache.notes.setdefault(NoInitialiser, False):
        return
    model.source.cache.notes[NoInitialiser] = True
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    warn_once.warn(
        f"no initialiser of {model.source.name} makes {shown}: "
        "the model's own values are kept, whatever the key",
        NoInitialiser,
    )
