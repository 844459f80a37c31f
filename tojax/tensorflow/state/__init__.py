"""What a graph keeps between calls: variables and tables. Importing it registers their handlers."""

from tojax.tensorflow.state import generator, optimizers, parts, tables, variables  # noqa: F401
