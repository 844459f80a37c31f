"""The initialisers of Keras models: the model is built again from its configuration."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


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
