"""The lowerings: importing this folder fills the table."""

from tojax.stablehlo.ops import (  # noqa: F401
    chlo,
    collective,
    convolution,
    dot,
    dynamic,
    elementwise,
    gather,
    linalg,
    normalization,
    random,
    reduce,
    scatter,
    shape,
    sharding,
    sort,
    window,
)
