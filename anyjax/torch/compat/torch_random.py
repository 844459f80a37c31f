"""torch's default generator, where forward seeds it: a generator of the trace's own in its place.

torch.manual_seed(0)
noise = torch.randn(4)      # torch's numbers, the same in every call, and without a key
"""

from __future__ import annotations

import torch

from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lifting import inner


@replaces(*private.MANUAL_SEED)
def manual_seed(original, seed):
    """Seeds the trace's generator; torch's own stays as it is."""
    generators = current_trace.trace().generators
    generators.default = torch.Generator().manual_seed(int(seed))
    return generators.default


@replaces(*private.GET_RNG_STATE)
def get_rng_state(original):
    """Reads the state that draws follow from."""
    return current_trace.trace().generators.state()


@replaces(*private.SET_RNG_STATE)
def set_rng_state(original, new_state):
    """Draws from a state on, as on leaving ``torch.random.fork_rng``."""
    current_trace.trace().generators.restore(inner(new_state))
