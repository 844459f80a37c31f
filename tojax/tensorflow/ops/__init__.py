"""The lowerings: importing this folder fills the table."""

from tojax.tensorflow.ops import (  # noqa: F401
    array,
    conv,
    graph,
    math,
    matmul,
    nn,
    pool,
    reduce,
)
