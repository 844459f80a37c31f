"""tf2jax's way to call a StableHLO module; here it can be differentiated and mapped."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from anyjax.stablehlo.engine.evaluate import Run
from anyjax.stablehlo.engine.parse import parse
from anyjax.typing import Output


@dataclass(frozen=True, kw_only=True)
class MhloModule:
    """A module as text; the two switches of tf2jax have no effect here.

    Attributes:
      module: the text of a StableHLO module.
      fun_name: a name for it, which its ``repr`` shows.
      assume_grad_fn: without effect: the module can always be differentiated.
      require_platform_index: without effect.
    """

    module: str
    fun_name: str
    assume_grad_fn: bool = False
    require_platform_index: bool = False

    def __str__(self) -> str:
        return f"MhloModule(fun_name={self.fun_name}, ...)"


def mhlo_apply(*args: Any, module: MhloModule) -> Output:
    """Returns the output of the module's main function, or a tuple of several.

    Args:
      *args: arrays of the shapes and dtypes that the module takes.
      module: the module.

    Raises:
      BadCheckpoint: its text is no module.
      MissingOps: an operation of it has no lowering.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> text = jax.jit(jnp.sin).lower(jnp.ones(2)).as_text()
      >>> mhlo = anyjax.tensorflow.experimental.mhlo
      >>> sine = mhlo.MhloModule(module=text, fun_name="sine")
      >>> mhlo.mhlo_apply(jnp.zeros(2), module=sine).tolist()
      [0.0, 0.0]
    """
    results = _run(module.module).function("main", [jnp.asarray(x) for x in args])
    out: Any = tuple(map(jnp.asarray, results))
    return out[0] if len(out) == 1 else out


@functools.lru_cache(64)
def _run(text: str) -> Run:
    return Run(parse(text))
