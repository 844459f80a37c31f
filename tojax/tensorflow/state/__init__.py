"""What a graph keeps between calls: variables and tables. Importing it registers their handlers."""

from tojax.tensorflow.state import (  # noqa: F401
    generator,
    optimizers,
    parts,
    references,
    tables,
    variables,
)
