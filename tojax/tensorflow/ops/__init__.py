"""The lowerings: importing this folder fills the table."""

from tojax.tensorflow.ops import (  # noqa: F401
    array,
    bessel,
    bitwise,
    compare,
    complex,
    conv,
    cumulative,
    elementwise_grad,
    fft,
    graph,
    math,
    matmul,
    nn,
    pool,
    random,
    reduce,
    special,
    stateless,
)
