"""Whether an exported JAX function, read back, agrees with the original."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import anyjax
from tests.tolerance import assert_close


def assert_agrees(function, *args, grad: bool = True, vmap: bool = True, depth: int = 64):
    """Compares value, gradient (for random cotangents) and vmap; returns the Model."""
    shapes = [jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in args]
    artifact = export.export(jax.jit(function))(*shapes)
    model = anyjax.from_stablehlo(artifact.serialize())
    call = lambda *xs: model.apply({}, *xs)
    want = function(*args)
    assert_close(jax.jit(call)(*args), want, reduction=depth)
    assert_close(call(*args), want, reduction=depth)
    floats = [i for i, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.inexact)]
    if grad and floats:
        losses = [_loss(f, want) for f in (call, function)]
        ours, theirs = (
            jax.jit(jax.grad(loss, argnums=floats, holomorphic=False))(*args) for loss in losses
        )
        assert_close(ours, theirs, reduction=depth)
    if vmap:
        several = [jnp.stack([x, x // 2 if x.dtype.kind in "iu" else x]) for x in args]
        assert_close(
            jax.jit(jax.vmap(call))(*several), jax.vmap(function)(*several), reduction=depth
        )
    return model


def _loss(function, like):
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(np.shape(x)) for x in jax.tree.leaves(like)]

    def loss(*args):
        out = jax.tree.leaves(function(*args))
        floats = [(x, w) for x, w in zip(out, weights) if jnp.issubdtype(x.dtype, jnp.inexact)]
        return sum(jnp.sum(jnp.real(x) * w.astype(jnp.real(x).dtype)) for x, w in floats)

    return loss
