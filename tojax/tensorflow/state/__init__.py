"""State of a graph: variables, generators, tables. Importing it registers their handlers."""

from tojax.tensorflow.state import (  # noqa: F401
    generator,
    optimizers,
    parts,
    references,
    tables,
    variables,
)
