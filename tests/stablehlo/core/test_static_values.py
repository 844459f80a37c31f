"""Symbolic sizes as numbers of a program."""

import jax
import numpy as np
from jax import export

from anyjax.stablehlo.core.static_values import as_jax


def test_symbolic_sizes():
    (b,) = export.symbolic_shape("b")
    size = lambda x: as_jax(np.array([x.shape[0], 2], object))
    exported = export.export(jax.jit(size))(jax.ShapeDtypeStruct((b,), np.float32))
    assert exported.call(np.ones(5, np.float32)).tolist() == [5, 2]
