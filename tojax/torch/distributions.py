"""``torch.distributions`` while it is traced: the checks of its arguments look at values."""

from __future__ import annotations

import jax
import torch
from torch.distributions import Dirichlet, Distribution

from tojax.errors import DataDependent
from tojax.torch import blame
from tojax.torch.tensor import JaxTensor

NONE = torch.Size()


def traced(value) -> bool:
    """Whether a tensor's values are not known yet."""
    if not isinstance(value, torch.Tensor):
        return False
    if torch._is_functional_tensor(value):
        value = torch._from_functional_tensor(value)
    return isinstance(value, JaxTensor) and isinstance(value.array, jax.core.Tracer)


def init(original, self, batch_shape=NONE, event_shape=NONE, validate_args=None):
    """Traced parameters are checked only if that was asked for, and then it is an error."""
    unknown = not validate_args and any(map(traced, vars(self).values()))
    try:
        original(self, batch_shape, event_shape, False if unknown else validate_args)
    except DataDependent as error:
        if validate_args:
            raise DataDependent(
                f"{type(self).__name__}(validate_args=True) needs values while they are traced",
                arguments=error.arguments,
                where=blame.where(),
                why="the program is compiled for all values at once, so none is known yet",
                do="leave validate_args out, or say validate_args=False",
            ) from error
        original(self, batch_shape, event_shape, False)


def validate_sample(original, self, value):
    """Type and shape are checked, the values where they are known."""
    try:
        original(self, value)
    except DataDependent:
        if not traced(value):
            raise


def rsample(original, self, sample_shape=()):
    """Differentiable by itself; torch has a backward function of its own for it."""
    shape = self._extended_shape(sample_shape)
    return torch._sample_dirichlet(self.concentration.expand(shape))


PATCHES = [
    (Distribution, "__init__", init),
    (Distribution, "_validate_sample", validate_sample),
    (Dirichlet, "rsample", rsample),
]
