"""Primitives of our own, which a function of JAX computes and whose rules are functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax
from jax.interpreters import ad, batching, mlir

Primitive: Any = type(lax.add_p)  # jax.extend, where it has its public name, loads Pallas, too


def primitive(
    name: str,
    run: Callable,
    types: Callable,
    *,
    jvp: Callable,
    vmap: Callable,
    transpose: Callable | None = None,
) -> Primitive:
    """Makes a primitive of several results.

    Args:
      name: in programs.
      run: computes it, also where it is lowered.
      types: gives the abstract values of its results for those of its operands.
      jvp, vmap, transpose: its rules, as JAX's own have them; without the last one it has no
        pullback of its own.

    Example:
      >>> import jax
      >>> push = lambda primals, tangents: (twice.bind(*primals), twice.bind(*tangents))
      >>> double = lambda x: [2 * x]
      >>> twice = primitive("twice", double, lambda x: [x], jvp=push, vmap=lambda x, at: (
      ...     twice.bind(*x), at))
      >>> jax.jit(jax.vmap(lambda x: twice.bind(x)[0]))(jax.numpy.ones(2)).tolist()
      [2.0, 2.0]
    """
    new = Primitive(name)
    new.multiple_results = True
    new.def_impl(run)
    new.def_abstract_eval(types)
    mlir.register_lowering(new, mlir.lower_fun(run, multiple_results=True))
    ad.primitive_jvps[new] = jvp
    batching.primitive_batchers[new] = vmap
    if transpose is not None:
        ad.primitive_transposes[new] = transpose
    return new
