"""Optimizers: operators that write variables from their gradients.

A rule takes the values of the variables and the other inputs by TensorFlow's names, and returns the
new values in the order of the operator's variables. A sparse operator applies it to rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.static_values import as_jax, is_known
from anyjax.tensorflow.core.nodes import Node
from anyjax.tensorflow.core.private import op_def_of
from anyjax.tensorflow.core.running import Running, handles
from anyjax.tensorflow.state.variables import Handle, store, value_of

ATTRIBUTES = "use_nesterov", "update_slots", "multiply_linear_by_lr"


def momentum_(var, accum, lr, grad, momentum, use_nesterov):
    accum = accum * momentum + grad
    return var - lr * (grad + momentum * accum if use_nesterov else accum), accum


def keras_momentum(var, accum, lr, grad, momentum, use_nesterov):
    accum = accum * momentum - grad * lr
    return var + (accum * momentum - grad * lr if use_nesterov else accum), accum


def _moments(m, v, beta1, beta2, grad):
    return m + (grad - m) * (1 - beta1), v + (lax.square(grad) - v) * (1 - beta2)


def adam(var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_nesterov):
    rate = lr * jnp.sqrt(1 - beta2_power) / (1 - beta1_power)
    m, v = _moments(m, v, beta1, beta2, grad)
    ahead = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    return var - rate * ahead / (jnp.sqrt(v) + epsilon), m, v


def adam_with_amsgrad(var, m, v, vhat, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad):
    rate = lr * jnp.sqrt(1 - beta2_power) / (1 - beta1_power)
    m, v = _moments(m, v, beta1, beta2, grad)
    vhat = jnp.maximum(vhat, v)
    return var - rate * m / (jnp.sqrt(vhat) + epsilon), m, v, vhat


def ada_max(var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad):
    m, v = m + (grad - m) * (1 - beta1), jnp.maximum(beta2 * v, abs(grad))
    return var - lr / (1 - beta1_power) * (m / (v + epsilon)), m, v


def adagrad(var, accum, lr, grad, update_slots):
    accum = accum + lax.square(grad) if update_slots else accum
    return var - lr * grad * lax.rsqrt(accum), accum


def adagrad_v2(var, accum, lr, epsilon, grad, update_slots):
    accum = accum + lax.square(grad) if update_slots else accum
    return var - lr * grad / (jnp.sqrt(accum) + epsilon), accum


def adadelta(var, accum, accum_update, lr, rho, epsilon, grad):
    accum = accum * rho + lax.square(grad) * (1 - rho)
    update = jnp.sqrt(accum_update + epsilon) * lax.rsqrt(accum + epsilon) * grad
    return var - update * lr, accum, accum_update * rho + lax.square(update) * (1 - rho)


def rms_prop(var, ms, mom, lr, rho, momentum, epsilon, grad):
    ms = ms + (lax.square(grad) - ms) * (1 - rho)
    mom = mom * momentum + lr * grad * lax.rsqrt(ms + epsilon)
    return var - mom, ms, mom


def centered_rms_prop(var, mg, ms, mom, lr, rho, momentum, epsilon, grad):
    ms = ms + (lax.square(grad) - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + lr * grad * lax.rsqrt(ms - lax.square(mg) + epsilon)
    return var - mom, mg, ms, mom


def ftrl(var, accum, linear, grad, lr, l1, l2, lr_power, multiply_linear_by_lr, l2_shrinkage=None):
    squared = accum + lax.square(grad)
    grad = grad if l2_shrinkage is None else grad + 2 * l2_shrinkage * var
    # ``linear`` is multiplied by the rate or not, and all terms with it
    times, over = (lr, 1) if multiply_linear_by_lr else (1, lr)
    power = lambda x: x**-lr_power
    linear = linear + grad * times - (power(squared) - power(accum)) / over * var
    shrunk = jnp.sign(linear) * jnp.maximum(abs(linear) - l1 * times, 0)
    return -shrunk / (power(squared) / over + 2 * l2 * times), squared, linear


def add_sign(var, m, lr, alpha, sign_decay, beta, grad):
    m = m * beta + grad * (1 - beta)
    return var - lr * (alpha + sign_decay * jnp.sign(grad) * jnp.sign(m)) * grad, m


def power_sign(var, m, lr, logbase, sign_decay, beta, grad):
    m = m * beta + grad * (1 - beta)
    return var - lr * jnp.exp(logbase * sign_decay * jnp.sign(grad) * jnp.sign(m)) * grad, m


def _proximal(x, rate, l1, l2):
    """Shrinks x towards 0 by the L1 and L2 penalties: the proximal operator."""
    near = jnp.where(l1 > 0, jnp.sign(x) * jnp.maximum(abs(x) - rate * l1, 0), x)
    return near / (1 + l2 * rate)


def proximal_gradient_descent(var, alpha, l1, l2, grad):
    return (_proximal(var - alpha * grad, alpha, l1, l2),)


def proximal_adagrad(var, accum, lr, l1, l2, grad):
    accum = accum + lax.square(grad)
    rate = lr * lax.rsqrt(accum)
    return _proximal(var - grad * rate, rate, l1, l2), accum


def adagrad_da(
    var, gradient_accumulator, gradient_squared_accumulator, grad, lr, l1, l2, global_step
):
    step = jnp.asarray(global_step).astype(var.dtype)
    total = gradient_accumulator + grad
    squared = gradient_squared_accumulator + lax.square(grad)
    shrunk = jnp.where(l1 > 0, jnp.sign(total) * jnp.maximum(abs(total) - l1 * step, 0), total)
    return -lr * shrunk / (l2 * step * lr + jnp.sqrt(squared)), total, squared


RULES: dict[str, Callable] = {
    "GradientDescent": lambda var, alpha, grad: (var - alpha * grad,),
    "Momentum": momentum_,
    "KerasMomentum": keras_momentum,
    "Adam": adam,
    "AdamWithAmsgrad": adam_with_amsgrad,
    "AdaMax": ada_max,
    "Adagrad": adagrad,
    "AdagradV2": adagrad_v2,
    "Adadelta": adadelta,
    "RMSProp": rms_prop,
    "CenteredRMSProp": centered_rms_prop,
    "Ftrl": ftrl,
    "FtrlV2": ftrl,
    "AddSign": add_sign,
    "PowerSign": power_sign,
    "ProximalGradientDescent": proximal_gradient_descent,
    "ProximalAdagrad": proximal_adagrad,
    "AdagradDA": adagrad_da,
}


def arguments(node: Node, inputs) -> tuple[list[Handle], dict[str, Any]]:
    """Returns the variables, and all other inputs and attributes by name."""
    names = [arg.name for arg in op_def_of(node.op).input_arg]
    written = [x for x in inputs if isinstance(x, Handle)]
    parameters = {n: as_jax(x) for n, x in zip(names, inputs) if not isinstance(x, Handle)}
    if "delta" in parameters:
        parameters["grad"] = parameters.pop("delta")
    parameters |= {n: node.attr(n) for n in ATTRIBUTES if n in node.proto.attr}
    return written, parameters


def dense(rule: Callable, run: Running, node: Node, inputs) -> tuple:
    written, parameters = arguments(node, inputs)
    for handle, value in zip(written, rule(*[value_of(run, x) for x in written], **parameters)):
        store(run, handle, value)
    return ()


def sparse(rule: Callable, run: Running, node: Node, inputs) -> tuple:
    """Updates rows one after another if one occurs twice, else all at once."""
    written, parameters = arguments(node, inputs)
    indices, grad = parameters.pop("indices"), parameters.pop("grad")
    grad = jnp.asarray(grad)

    def rows(values, at, grad):
        new = rule(*[v[at] for v in values], grad=grad, **parameters)
        return [v.at[at].set(n) for v, n in zip(values, new)]

    in_turn = lambda values: lax.scan(lambda v, x: (rows(v, *x), None), values, (indices, grad))[0]
    at_once = lambda values: rows(values, indices, grad)
    values = [jnp.asarray(value_of(run, x)) for x in written]
    places = inputs[[arg.name for arg in op_def_of(node.op).input_arg].index("indices")]
    if is_known(places) or not isinstance(places, jax.core.Tracer):
        unique = len(np.unique(np.asarray(places))) == places.size
        new = (at_once if unique else in_turn)(values)
    else:
        new = lax.cond((jnp.diff(jnp.sort(indices)) > 0).all(), at_once, in_turn, values)
    for handle, value in zip(written, new):
        store(run, handle, value)
    return ()


for _name, _rule in RULES.items():
    handles(f"ResourceApply{_name}")(partial(dense, _rule))
    if op_def_of(f"ResourceSparseApply{_name}") is not None:
        handles(f"ResourceSparseApply{_name}")(partial(sparse, _rule))
