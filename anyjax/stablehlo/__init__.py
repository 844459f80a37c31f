"""The StableHLO frontend: modules, operation by operation, in lax."""

from anyjax.private_names import check_version
from anyjax.stablehlo import ops as _ops  # noqa: F401  (fills the table)
from anyjax.stablehlo.control_flow import rows as _rows  # noqa: F401
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.custom_calls import serves
from anyjax.stablehlo.source import from_stablehlo

check_version("jax")

__all__ = ["from_stablehlo", "lowers", "serves"]
