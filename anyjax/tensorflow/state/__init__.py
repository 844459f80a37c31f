"""State of a graph: variables, generators, tables. Importing it registers their handlers."""

from anyjax.tensorflow.state import (  # noqa: F401
    generator,
    optimizers,
    parts,
    references,
    tables,
    variables,
)
