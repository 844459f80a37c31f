"""``XlaCallModule``: jax2tf's operator for a JAX program, as StableHLO."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import WrongValue
from anyjax.stablehlo.core.static_values import as_jax
from anyjax.stablehlo.engine.evaluate import Run
from anyjax.stablehlo.engine.parse import parse
from anyjax.tensorflow.core.options import option
from anyjax.tensorflow.core.running import handles


@handles("XlaCallModule")
def xla_call_module(run, node, inputs):
    """Runs a module; one for several platforms takes the number of the current one first."""
    if "stablehlo" not in node.cache:
        node.cache["stablehlo"] = Run(parse(node.proto.attr["module"].s))
    module = node.cache["stablehlo"]
    platforms = node.attr("platforms") or []
    platform = jax.default_backend().upper().replace("GPU", "CUDA")
    checked = "platform" not in (node.attr("disabled_checks") or [])
    if (
        platforms
        and platform not in platforms
        and checked
        and option("xlacallmodule_strict_checks")
    ):
        raise WrongValue(
            f"Unsupported backend: `{platform.lower()}` not in `{[p.lower() for p in platforms]}`",
            why="the program was lowered for other platforms",
            do="export it for this one, or set xlacallmodule_strict_checks to False",
        )
    values: list[Any] = [jnp.asarray(as_jax(x)) for x in inputs]
    if len(platforms) > 1:
        values = [np.int32(platforms.index(platform) if platform in platforms else 0), *values]
    return tuple(module.function("main", values))
