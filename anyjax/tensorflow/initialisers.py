"""The initialisers of Keras models: a model is built again from its configuration, on the host."""

from __future__ import annotations

import random
from typing import Any

import jax
import numpy as np


def initial(source: Any, arrays: dict[str, Any], rng: jax.Array) -> dict[str, jax.Array]:
    """Returns the variables that a model has which is built from a key, by name; in a trace by a
    callback, once for each run of the program.
    """
    bits = jax.random.bits(rng, (2,), "uint32")
    names = [*rerun(source, 0)] if isinstance(bits, jax.core.Tracer) else None

    def host(bits: Any) -> dict[str, np.ndarray]:
        high, low = (int(x) for x in np.asarray(bits))
        new = rerun(source, high << 31 ^ low)
        return {k: np.asarray(x, arrays[k].dtype) for k, x in new.items()}

    if names is None:
        return {k: jax.numpy.asarray(x) for k, x in host(bits).items()}
    shapes = {k: jax.ShapeDtypeStruct(arrays[k].shape, arrays[k].dtype) for k in names}
    return jax.pure_callback(host, shapes, bits, vmap_method="sequential")


def rerun(source: Any, seed: int) -> dict[str, np.ndarray]:
    """Builds a model again under a seed, and returns its variables by name; none if that fails.

    Initialisers with a seed of their own give the same values for every key, as in Keras.
    """
    import keras

    layer = source.module
    if not isinstance(layer, keras.layers.Layer):
        return {}
    random_state = random.getstate()
    random.seed(seed)  # from which Keras draws the seeds of initialisers without one
    try:
        new = type(layer).from_config(layer.get_config())
        if not new.built:
            new.build_from_config(layer.get_build_config())
    except (NotImplementedError, TypeError, ValueError):  # a layer without a configuration
        return {}
    finally:
        random.setstate(random_state)
    new_variables = {
        id(old.value): variable for old, variable in zip(layer.variables, new.variables)
    }
    values = source.function.variables
    pairs = {name: new_variables.get(id(value)) for name, value in values.items()}
    return {name: np.asarray(variable) for name, variable in pairs.items() if variable is not None}
