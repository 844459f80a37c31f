"""Types of values and functions of torch and of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
import torch

TorchCallable: TypeAlias = Callable[..., object]
TorchValue: TypeAlias = torch.Tensor | torch.dtype | TorchCallable | object
JaxCallable: TypeAlias = Callable[..., object]
JaxValue: TypeAlias = jax.Array | np.dtype | JaxCallable | object
