"""The TensorFlow frontend: graphs of TensorFlow, computed by JAX."""

from tojax.tensorflow import control_flow as _control  # noqa: F401
from tojax.tensorflow import ops as _ops  # noqa: F401  (fills the table)
from tojax.tensorflow import state as _state  # noqa: F401
from tojax.tensorflow.control_flow import branches as _branches  # noqa: F401
from tojax.tensorflow.control_flow import calls as _calls  # noqa: F401
from tojax.tensorflow.control_flow import tensor_list as _tensor_list  # noqa: F401
from tojax.tensorflow.core.schema import lowers
from tojax.tensorflow.source import from_tensorflow
from tojax.tensorflow.state import optimizers as _optimizers  # noqa: F401
from tojax.tensorflow.state import variables as _variables  # noqa: F401

__all__ = ["from_tensorflow", "lowers"]
