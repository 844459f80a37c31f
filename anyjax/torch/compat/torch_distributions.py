"""``torch.distributions`` while it is traced: the checks of its arguments look at values."""

from __future__ import annotations

import math

import torch
from torch.distributions import Dirichlet, Normal, VonMises

from anyjax.errors import DataDependent
from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.lifting import is_traced

NONE = torch.Size()


@replaces(private.DISTRIBUTION, probe=lambda: Normal(0.0, 1.0))
def init(original, self, batch_shape=NONE, event_shape=NONE, validate_args=None):
    """Traced parameters are checked only if that was asked for, and then it is an error."""
    unknown = not validate_args and any(map(is_traced, vars(self).values()))
    try:
        original(self, batch_shape, event_shape, False if unknown else validate_args)
    except DataDependent as error:
        if validate_args:
            raise DataDependent(
                f"{type(self).__name__}(validate_args=True) needs values while they are traced",
                arguments=error.arguments,
                where=diagnostics.where(),
                why="the program is compiled for all values at once, so none is known yet",
                do="leave validate_args out, or say validate_args=False",
            ) from error
        original(self, batch_shape, event_shape, False)


@replaces(
    private.SAMPLE_CHECK,
    probe=lambda: Normal(0.0, 1.0, validate_args=True).log_prob(torch.zeros(())),
)
def validate_sample(original, self, value):
    """Type and shape are checked, the values where they are known."""
    try:
        original(self, value)
    except DataDependent:
        if not is_traced(value):
            raise


@replaces(private.DIRICHLET, probe=lambda: Dirichlet(torch.ones(2)).sample())
def rsample(original, self, sample_shape=()):
    """Differentiable by itself; torch has a backward function of its own for it."""
    shape = self._extended_shape(sample_shape)
    return private.sample_dirichlet(self.concentration.expand(shape))


@replaces(private.VON_MISES, probe=lambda: VonMises(torch.zeros(1), torch.ones(1)).sample())
def rejection_sample(original, loc, concentration, proposal_r, x):
    """torch draws in a loop until all is accepted, which here is a loop of the program."""

    def attempt(done, x):
        across, height, side = torch.rand(3, *x.shape, dtype=x.dtype).unbind()
        z = torch.cos(math.pi * across)
        f = (1 + proposal_r * z) / (proposal_r + z)
        c = concentration * (proposal_r - f)
        accept = (c * (2 - c) > height) | ((c / height).log() + 1 - c >= 0)
        x = torch.where(accept & ~done, (side - 0.5).sign() * f.acos(), x)
        return done | accept, x

    start = torch.zeros_like(x, dtype=torch.bool), torch.zeros_like(x)
    _, x = torch.while_loop(lambda done, x: ~done.all(), attempt, start)
    return (x + math.pi + loc) % (2 * math.pi) - math.pi


@replaces(private.TRUNCATED, probe=lambda: torch.nn.init.trunc_normal_(torch.zeros(1)))
@torch.no_grad()
def trunc_normal_(original, tensor, mean, std, a, b, generator=None):
    """torch draws again until all is inside; here by the inverse of the distribution."""
    if generator is not None:
        return original(tensor, mean, std, a, b, generator)
    low, high = (math.erf((x - mean) / std / 2**0.5) for x in (a, b))
    tensor.uniform_(low, high).erfinv_().mul_(std * 2**0.5).add_(mean)
    return tensor.clamp_(a, b)
