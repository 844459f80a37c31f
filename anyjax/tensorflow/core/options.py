"""Options that some lowerings read; ``from_tensorflow`` uses these defaults."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {
    "force_const_float32_to_bfloat16": False,
    "force_const_float64_to_bfloat16": False,
    "convert_custom_gradient": True,
    "infer_relu_from_jax2tf": False,
    "infer_cumulative_reduction_from_jax2tf": True,
    "raise_on_prevent_gradient": True,
    "resize_bilinear_precision": "highest",
    "enable_checkify_for_asserts": False,
    "xlacallmodule_strict_checks": True,
    "disable_assert_in_tensor_list_get_item": False,
}
_current: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "options", default=DEFAULTS
)


def option(name: str) -> Any:
    """Returns an option of the graph that is being evaluated."""
    return _current.get()[name]


@contextlib.contextmanager
def using(options: Mapping[str, object]) -> Iterator[None]:
    """Sets the options inside of a ``with`` block."""
    token = _current.set(options)
    try:
        yield
    finally:
        _current.reset(token)
