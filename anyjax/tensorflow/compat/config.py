"""tf2jax's switches, for all of this process; ``from_tensorflow`` does not look at them.

Source: the documentation of tf2jax 0.3.8.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from anyjax.errors import WrongValue
from anyjax.tensorflow.core.options import DEFAULTS

_config: dict[str, Any] = {
    **DEFAULTS,
    "strict_shape_check": True,
    "strict_dtype_check": False,
    "infer_relu_from_jax2tf": True,
    "skip_variables_evaluation_inside_tf_tracing": False,
}


def get_config(name: str) -> bool | str:
    """Returns the value of a switch.

    Example:
      >>> anyjax.tensorflow.get_config("strict_shape_check")
      True
    """
    return _config[_checked(name)]


def update_config(name: str, value: bool | str) -> None:
    """Sets a switch.

    Raises:
      WrongValue: there is no such switch.

    Example:
      >>> anyjax.tensorflow.update_config("strict_shape_check", True)
    """
    _config[_checked(name)] = value


@contextlib.contextmanager
def override_config(name: str, value: bool | str) -> Iterator[None]:
    """Sets a switch inside of a ``with`` block.

    Example:
      >>> with anyjax.tensorflow.override_config("convert_custom_gradient", False):
      ...     anyjax.tensorflow.get_config("convert_custom_gradient")
      False
    """
    old_value = get_config(name)
    update_config(name, value)
    try:
        yield
    finally:
        update_config(name, old_value)


def snapshot() -> dict[str, Any]:
    """Returns the current values of all switches."""
    return dict(_config)


def _checked(name: str) -> str:
    if name not in _config:
        raise WrongValue(
            f"there is no switch {name!r}",
            why=f"there are {', '.join(sorted(_config))}",
            do="use one of these names",
        )
    return name
