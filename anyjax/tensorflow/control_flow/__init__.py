"""Calls, branches, loops, lists and gradients in a graph; importing it registers their handlers."""

from anyjax.tensorflow.control_flow import (  # noqa: F401
    branches,
    calls,
    functionalize,
    optional,
    tensor_array,
    tensor_list,
    xla_call_module,
)
