"""The lowerings, one file per family; importing this package fills the table."""

from tojax.torch.ops import (
    activation,
    attention,
    conv,
    create,
    index,
    matmul,
    norm,
    pointwise,
    pool,
    random,
    reduce,
    shape,
    sort,
)

__all__ = [
    "activation",
    "attention",
    "conv",
    "create",
    "index",
    "matmul",
    "norm",
    "pointwise",
    "pool",
    "random",
    "reduce",
    "shape",
    "sort",
]
