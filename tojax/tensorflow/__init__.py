"""The TensorFlow frontend: graphs of TensorFlow, computed by JAX."""

from tojax.errors import MissingInputError, imports_of

with imports_of("tojax.tensorflow"):
    import tensorflow  # noqa: F401

from tojax.private_names import check_version
from tojax.tensorflow import control_flow as _control_flow  # noqa: F401
from tojax.tensorflow import ops as _ops  # noqa: F401  (fills the table)
from tojax.tensorflow import state as _state  # noqa: F401
from tojax.tensorflow.compat import config, experimental
from tojax.tensorflow.compat.config import get_config, override_config, update_config
from tojax.tensorflow.compat.convert import (
    AnnotatedFunction,
    convert,
    convert_from_restored,
    convert_functional,
    convert_functional_from_restored,
    get_unsupported_operations,
)
from tojax.tensorflow.core.schema import lowers
from tojax.tensorflow.preprocessing import split_preprocessing
from tojax.tensorflow.source import from_tensorflow

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
