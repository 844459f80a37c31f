"""The initialisers of Keras models: the model is built again from its configuration."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def rerun(source: Any, seed: int) -> dict[str, np.ndarray]:
    """The variables of a model that is built again under a seed, by name; empty where it cannot be.

    Initialisers with a seed of their own give the same values whatever the key, as in Keras.
    """
    import keras

    layer = source.module
    if not isinstance(layer, keras.layers.Layer):
        return {}
    before = random.getstate()
    random.seed(seed)  # where Keras takes the seeds from that initialisers lack
    try:
        new = type(layer).from_config(layer.get_config())
        if not new.built:
            new.build_from_config(layer.get_build_config())
    except (NotImplementedError, TypeError, ValueError):  # a layer without a configuration
        return {}
    finally:
        random.setstate(before)
    made = {id(old.value): variable for old, variable in zip(layer.variables, new.variables)}
    pairs = {name: made.get(id(held)) for name, held in source.function.variables.items()}
    return {name: np.asarray(variable) for name, variable in pairs.items() if variable is not None}
