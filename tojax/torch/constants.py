"""Python values of tensors during a trace: constants give theirs, traced values raise
DataDependent.
"""

from __future__ import annotations

import jax
import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from tojax.torch.tensor import JaxTensor

READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__}


class ConstantsMode(TorchFunctionMode):
    """Serves ``tolist``, ``numpy`` and ``__array__``, which read memory that functional tensors do
    not have.
    """

    def __init__(self, trace):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in READS:
            return func(*args, **(kwargs or {}))
        tensor = args[0]
        if torch._is_functional_tensor(tensor):
            torch._sync(tensor)
            tensor = torch._from_functional_tensor(tensor)
        if not isinstance(tensor, JaxTensor):
            return func(tensor, *args[1:], **(kwargs or {}))
        if isinstance(tensor.array, jax.core.Tracer):
            raise self.trace.data_dependent(f"Tensor.{func.__name__}", [tensor])
        values = np.asarray(tensor.array)
        return values.tolist() if func is torch.Tensor.tolist else values
