"""Two programs of JAX, equation for equation."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from tojax.transforms.rolling.same import Kinds

# Functions that are made anew in each trace: how the program is differentiated.
RULES = {"jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"}


def difference(one: ClosedJaxpr, other: ClosedJaxpr) -> str:
    """What one program computes and the other does not, up to the order of equations that do not
    depend on each other; empty where they are equal.
    """
    kinds = Kinds()
    numbers: dict = {}
    settings = lambda eqn: tuple(
        (k, kinds.form(v)) for k, v in sorted(eqn.params.items()) if k not in RULES
    )
    number = lambda thing: numbers.setdefault(thing, len(numbers))
    said = {}

    def read(closed: ClosedJaxpr):
        jaxpr = closed.jaxpr
        known = {v: number(("given", i)) for i, v in enumerate(jaxpr.invars)}
        known |= {v: number(content(x)) for v, x in zip(jaxpr.constvars, closed.consts)}
        value = lambda v: number(content(v.val)) if isinstance(v, Literal) else known[v]
        made: Counter = Counter()
        for eqn in jaxpr.eqns:
            types = tuple(v.aval for v in (*eqn.invars, *eqn.outvars))
            node = number((eqn.primitive, settings(eqn), types, *map(value, eqn.invars)))
            made[node] += 1
            said[node] = f"{eqn.primitive} of {[v.aval for v in eqn.invars]}"
            known |= {v: number((node, i)) for i, v in enumerate(eqn.outvars)}
        return made, [value(v) for v in jaxpr.outvars]

    (a, outs), (b, others) = read(one), read(other)
    wrong = [f"{n - b[x]:+} {said[x]}" for x, n in a.items() if n != b[x]]
    wrong += [f"{a[x] - n:+} {said[x]}" for x, n in b.items() if x not in a]
    wrong += [f"result {i}" for i, (x, y) in enumerate(zip(outs, others)) if x != y]
    return "; ".join(wrong[:6])


def content(x):
    x = x if isinstance(x, jax.Array) else np.asarray(x)
    key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    x = np.asarray(jax.random.key_data(x) if key else x)
    return x.dtype.str, x.shape, x.tobytes()
