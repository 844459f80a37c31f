"""The lowerings: importing this folder fills the table."""

from tojax.tensorflow.ops import (  # noqa: F401
    activation,
    array,
    bessel,
    bias,
    bitwise,
    compare,
    complex,
    conv,
    cumulative,
    dilation,
    elementwise_grad,
    graph,
    loss,
    math,
    matmul,
    norm,
    pool,
    reduce,
    special,
)
