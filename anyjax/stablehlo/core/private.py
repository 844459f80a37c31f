"""Every private name of jaxlib that reads StableHLO; see ``anyjax.private_names``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from anyjax.private_names import need, optional

_FEATURE = "from_stablehlo"
stablehlo: Any = need("jaxlib.mlir.dialects.stablehlo:", _FEATURE)
chlo: Any = need("jaxlib.mlir.dialects.chlo:", _FEATURE)
sdy: Any = need("jaxlib.mlir.dialects.sdy:", "Shardy's operations")
hlo_to_stablehlo: Any = optional("jaxlib._jax:mlir.hlo_to_stablehlo", "HLO protos")
mhlo_to_stablehlo: Any = optional("jaxlib._jax:mlir.mhlo_to_stablehlo", "modules of MHLO")
threefry2x32_p: Any = optional("jax.extend.random:threefry2x32_p", "JAX's random bits")


def classes(dialect: ModuleType, names: str) -> list[Any]:
    """Returns the classes of attributes that the installed jaxlib has, by their names.

    Example:
      >>> len(classes(chlo, "PrecisionAttr NoSuchAttr"))
      1
    """
    return [getattr(dialect, name) for name in names.split() if hasattr(dialect, name)]
