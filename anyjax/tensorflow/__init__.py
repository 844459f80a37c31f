"""The TensorFlow frontend: graphs of TensorFlow, computed by JAX."""

from anyjax.errors import MissingInputError, imports_of

with imports_of("anyjax.tensorflow"):
    import tensorflow  # noqa: F401

from anyjax.private_names import check_version
from anyjax.tensorflow import control_flow as _control_flow  # noqa: F401
from anyjax.tensorflow import ops as _ops  # noqa: F401  (fills the table)
from anyjax.tensorflow import state as _state  # noqa: F401
from anyjax.tensorflow.compat import config, experimental
from anyjax.tensorflow.compat.config import get_config, override_config, update_config
from anyjax.tensorflow.compat.convert import (
    AnnotatedFunction,
    convert,
    convert_from_restored,
    convert_functional,
    convert_functional_from_restored,
    get_unsupported_operations,
)
from anyjax.tensorflow.core.schema import lowers
from anyjax.tensorflow.preprocessing import split_preprocessing
from anyjax.tensorflow.source import from_tensorflow

check_version("jax")
check_version("tensorflow")

__all__ = [
    "AnnotatedFunction",
    "MissingInputError",
    "config",
    "convert",
    "convert_from_restored",
    "convert_functional",
    "convert_functional_from_restored",
    "experimental",
    "from_tensorflow",
    "get_config",
    "get_unsupported_operations",
    "lowers",
    "override_config",
    "split_preprocessing",
    "update_config",
]
