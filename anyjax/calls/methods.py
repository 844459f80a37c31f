"""Methods of Model that floors above it add, such as ``model.generate(...)``.

The facade fills in the table, so that ``Model`` itself knows none of them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

# By name, where the function is: "package.module:name", or "package.module:Class.name".
FURTHER: dict[str, str] = {}

# What torch, Flax and Keras call what a Model has under another name.
INSTEAD = {
    **dict.fromkeys(("bind", "load_state_dict"), "use model.with_params(params), a new Model"),
    **dict.fromkeys(("forward", "predict"), "call it: model(*args), or model.apply(params, *args)"),
    **dict.fromkeys(("parameters", "named_parameters"), "the arrays are model.params"),
    **dict.fromkeys(("state_dict", "variables"), "the arrays are model.params and model.state"),
    **dict.fromkeys(("to", "cuda", "cpu"), "use jax.device_put(model, device), a new Model"),
    **dict.fromkeys(("half", "float", "bfloat16"), "give dtype= to from_pretrained"),
    "config": "it is model.source.module.config, of a transformers model",
    "device": "each of model.params has devices()",
    "replace": "use model.with_params(params) or model.with_state(state), a new Model",
}


def further(model: Any, name: str) -> Callable[..., Any]:
    """Returns ``model.name``, a method of the table.

    Raises:
      AttributeError: there is none; the message says what to write for a neighbour's name.
    """
    if name not in FURTHER:
        hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        raise AttributeError(f"{type(model).__name__!r} object has no attribute {name!r}{hint}")
    module, _, path = FURTHER[name].partition(":")
    function: Any = importlib.import_module(module)
    for attribute in path.split("."):
        function = getattr(function, attribute)
    return functools.partial(function, model)
