"""The lowerings: importing this folder fills the table."""

from tojax.stablehlo.ops import (  # noqa: F401
    chlo,
    collective,
    convolution,
    dot,
    dynamic,
    elementwise,
    gather,
    lapack,
    linalg,
    normalization,
    random,
    reduce,
    reflectors,
    scatter,
    shape,
    sharding,
    sort,
    window,
)
