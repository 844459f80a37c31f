"""Functions, branches, loops and gradients inside of a graph; importing it registers handlers."""

from tojax.tensorflow.control_flow import branches, calls, tensor_list  # noqa: F401
