"""Functions, branches, loops and gradients inside of a graph; importing it registers handlers."""

from tojax.tensorflow.control_flow import (  # noqa: F401
    branches,
    calls,
    functionalize,
    optional,
    tensor_array,
    tensor_list,
    xla_call_module,
)
