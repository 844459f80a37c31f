"""The StableHLO frontend: modules, operation by operation, in lax."""

from tojax.private_names import check_version
from tojax.stablehlo import ops as _ops  # noqa: F401  (fills the table)
from tojax.stablehlo.control_flow import rows as _rows  # noqa: F401
from tojax.stablehlo.core.schema import lowers
from tojax.stablehlo.custom_calls import serves
from tojax.stablehlo.source import from_stablehlo

check_version("jax")

__all__ = ["from_stablehlo", "lowers", "serves"]
