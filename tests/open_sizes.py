"""Programs of open sizes, as saved models have them."""

import jax
import numpy as np

import anyjax


def with_open_rows(function, *arrays, gradient=False):
    """Returns a torch function of arrays, computed by a program that takes any number of rows.

    Args:
      function: of tensors.
      *arrays: each with the rows first.
      gradient: return the gradient of its sum by the first array.
    """
    model = anyjax.from_torch(function)
    apply = lambda *args: model.apply({}, *args)
    if gradient:
        apply = jax.grad(lambda *args: model.apply({}, *args).sum())
    (rows,) = jax.export.symbolic_shape("rows")
    specs = [jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype) for x in arrays]
    return np.asarray(jax.export.export(jax.jit(apply))(*specs).call(*arrays))
