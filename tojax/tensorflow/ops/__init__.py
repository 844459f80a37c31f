"""The lowerings: importing this folder fills the table."""

from tojax.tensorflow.ops import (  # noqa: F401
    activation,
    array,
    bias,
    conv,
    dilation,
    graph,
    loss,
    math,
    matmul,
    norm,
    pool,
    reduce,
)
