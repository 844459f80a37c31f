"""The lowerings: importing this folder fills the table."""

from tojax.stablehlo.ops import (  # noqa: F401
    chlo,
    convolution,
    dot,
    dynamic,
    elementwise,
    gather,
    linalg,
    random,
    reduce,
    scatter,
    shape,
    sort,
    window,
)
