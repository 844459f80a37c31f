"""The TensorFlow frontend: graphs of TensorFlow, computed by JAX."""

from tojax.tensorflow import control_flow as _control_flow  # noqa: F401
from tojax.tensorflow import ops as _ops  # noqa: F401  (fills the table)
from tojax.tensorflow import state as _state  # noqa: F401
from tojax.tensorflow.core.schema import lowers
from tojax.tensorflow.source import from_tensorflow

__all__ = ["from_tensorflow", "lowers"]
