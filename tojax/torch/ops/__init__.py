"""The lowerings, one file per family; importing this package fills the table."""

from tojax.torch.ops import attention, index, matmul, norm, pointwise, shape

__all__ = ["attention", "index", "matmul", "norm", "pointwise", "shape"]
