"""What all layers share comes first, once."""

import jax
import jax.numpy as jnp

from anyjax.transforms.rolling.equation_kinds import Kinds
from anyjax.transforms.rolling.hoisting import hoist_shared, resolve


def layers(weights, ids, key):
    x = weights[0][ids]
    for i, w in enumerate(weights[1:]):
        mask = jnp.where(jnp.tril(jnp.ones((8, 8))) > 0, 0.0, -1.0)
        kept = jax.random.bernoulli(jax.random.fold_in(key, i), 0.5, (8, 1024))
        x = (mask @ x @ w) * kept.astype(x.dtype).mean()
    return x


def test_masks_once_and_draws_where_they_are():
    """Constants of all layers are one; large random arrays stay in their layer."""
    args = [jnp.ones((8, 8))] * 3, jnp.arange(8), jax.random.key(0)
    closed = jax.make_jaxpr(layers)(*args)
    named = {*closed.jaxpr.invars[:3]}
    eqns, renamed = hoist_shared(closed.jaxpr, named, {closed.jaxpr.invars[-1]}, Kinds())
    names = [e.primitive.name for e in eqns]
    assert names.count("select_n") + str(closed).count("_where") > 1
    assert sum("_where" in str(e.params.get("name")) for e in eqns) == 1
    draws = [i for i, e in enumerate(eqns) if "bits" in str(e)]
    products = [i for i, name in enumerate(names) if name == "dot_general"]
    assert draws[-1] > products[0]
    outvars = [resolve(v, renamed) for v in closed.jaxpr.outvars]
    out = jax.core.eval_jaxpr(
        closed.jaxpr.replace(eqns=eqns, outvars=outvars),
        closed.consts,
        *jax.tree.leaves(args),
    )
    assert (out[0] == layers(*args)).all()


def test_what_nobody_needs_is_left_out():
    """But for effects."""

    def wasteful(x):
        jnp.sin(x)
        jax.debug.print("{}", jnp.cos(x))
        return x + 1

    jaxpr = jax.make_jaxpr(wasteful)(1.0).jaxpr
    names = [e.primitive.name for e in hoist_shared(jaxpr, {*jaxpr.invars}, set(), Kinds())[0]]
    assert "sin" not in names and {"cos", "debug_print", "add"} >= {*names} >= {"cos", "add"}


def test_what_comes_of_an_effect_comes_after_it():
    """Though it depends on no weight."""

    def noted(w, i):
        ref = jax.new_ref(i)
        ref[...] = i * 3
        return w * (ref[...] + 1)

    jaxpr = jax.make_jaxpr(noted)(1.0, 2).jaxpr
    eqns = hoist_shared(jaxpr, {jaxpr.invars[0]}, set(), Kinds())[0]
    made = {*jaxpr.invars}
    for eqn in eqns:
        assert made.issuperset(v for v in eqn.invars if not hasattr(v, "val"))
        made.update(eqn.outvars)
    assert len(eqns) == len(jaxpr.eqns)


def test_thousands_of_equations_on_weights_alone():
    """In one chain."""

    def chain(w, x):
        for _ in range(3000):
            w = jnp.tanh(w)
        return w * x

    jaxpr = jax.make_jaxpr(chain)(1.0, 2.0).jaxpr
    eqns = hoist_shared(jaxpr, {jaxpr.invars[0]}, set(), Kinds())[0]
    assert [e.primitive for e in eqns] == [e.primitive for e in jaxpr.eqns]
