"""Compares what `anyjax.generate` returns with what transformers returns."""

import numpy as np
import torch

CACHES = {"past_key_values", "cache", "cache_params"}  # a Model's caches are its own


def assert_same_output(got, want):
    """Checks the tokens, and of an output class every field; scores up to rounding."""
    if isinstance(want, torch.Tensor):
        np.testing.assert_array_equal(got, want.numpy())
        return
    assert type(got) is type(want)
    names = set(want) - CACHES
    assert set(got) - CACHES == names
    for name in sorted(names):
        steps = [x if isinstance(x, tuple) else (x,) for x in (got[name], want[name])]
        for mine, theirs in zip(*steps, strict=True):
            if theirs.dtype.is_floating_point:
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3, err_msg=name)
            else:
                np.testing.assert_array_equal(mine, theirs, err_msg=name)
