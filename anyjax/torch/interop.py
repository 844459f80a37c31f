"""torchax's names for its users: the same functions, with no switch that stays behind.

Arrays and tensors are two views of the same values: ``torch_view`` and ``jax_view`` cross over, in
any pytree, and nothing is copied. Functions cross over, too: torch code that JAX calls, compiles or
differentiates, and JAX's functions on tensors.
"""

# torch is Any here (pyproject.toml), in which all overloads are one.
# mypy: disable-error-code="overload-cannot-match"

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, overload

import jax
import torch

from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics
from anyjax.torch.eager import torch_jax_views
from anyjax.torch.eager.environment import Environment
from anyjax.torch.eager.jittable import JittableModule
from anyjax.torch.eager.moved import to_jax
from anyjax.torch.eager.torch_jax_views import (
    call_jax,
    call_torch,
    gradient_checkpoint,
    jax_jit,
    jax_shard_map,
    jax_value_and_grad,
    jax_view,
    jax_view_elem,
    torch_view,
    torch_view_elem,
    wrap_jax_jit,
)
from anyjax.torch.jax_function import from_jax
from anyjax.torch.torchax import extract_jax
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import optax

    from anyjax.typing import TorchOutput

__all__ = [
    "JittableModule", "call_jax", "call_torch", "compile", "default_env", "disable_globally",
    "enable_globally", "extract_jax", "fori_loop", "gradient_checkpoint", "j2t_autograd", "jax_jit",
    "jax_shard_map", "jax_value_and_grad", "jax_view", "jax_view_elem", "jit", "make_train_step",
    "mark_sharding", "remat", "to_jax", "torch_view", "torch_view_elem", "wrap_jax_jit",
]  # fmt: skip

_ENVIRONMENT = Environment()


def default_env() -> Environment:
    """Returns the environment, a context like ``anyjax.torch.on_jax()``.

    Example:
      >>> import torch
      >>> with default_env():
      ...     torch.ones(2).jax()
      Array([1., 1.], dtype=float32)
    """
    return _ENVIRONMENT


def j2t_autograd(
    fn: Callable[..., object], call_jax: Callable[..., object] = call_jax
) -> Callable[..., TorchOutput]:
    """Returns a function of JAX as one of tensors, with JAX's gradients for torch's autograd.

    Args:
      fn: takes and returns any pytrees of arrays.
      call_jax: torchax's way to run JAX elsewhere; there is no other here than ``call_jax``.

    Raises:
      Unsupported: another ``call_jax`` is given.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> x = to_jax(torch.tensor([3.0, 4.0], requires_grad=True))
      >>> j2t_autograd(jnp.linalg.norm)(x).backward()
      >>> x.grad.tolist()
      [0.6000000238418579, 0.800000011920929]
    """
    if call_jax is not torch_jax_views.call_jax:
        raise Unsupported(
            "j2t_autograd with a call_jax of its own",
            why="the function runs where its arrays are",
            do="leave call_jax out",
        )
    return from_jax(fn)


jit = jax_jit


def fori_loop(
    lower: object, upper: object, body_fun: Callable[..., object], init_val: object, **options: Any
) -> TorchOutput:
    """Returns what ``jax.lax.fori_loop`` does with tensors.

    Args:
      lower, upper: the first ``i`` and the one after the last: numbers, or integer tensors ().
      body_fun: ``body_fun(i, value) -> value``, which keeps shapes and dtypes.
      init_val: a pytree of tensors.
      **options: those of JAX, such as ``unroll``.

    Example:
      >>> x = to_jax(torch.ones(2))
      >>> fori_loop(0, 3, lambda i, x: x + i, x).tolist()
      [4.0, 4.0]
    """
    return call_jax(jax.lax.fori_loop, lower, upper, body_fun, init_val, **options)


def remat(fun: Callable[..., object], **options: Any) -> Callable[..., TorchOutput]:
    """Returns a function of tensors under ``jax.checkpoint``.

    Args:
      fun: takes and returns pytrees of tensors.
      **options: those of JAX, such as ``policy``.

    Example:
      >>> x = to_jax(torch.ones(2))
      >>> jax_value_and_grad(remat(lambda x: (x**2).sum()))(x)[1].tolist()
      [2.0, 2.0]
    """
    return call_jax(jax.checkpoint, fun, **options)


def mark_sharding(x: object, shardings: object) -> TorchOutput:
    """Returns tensors with a sharding, as ``jax.lax.with_sharding_constraint`` does.

    Args:
      x: a pytree of tensors.
      shardings: one of JAX's, such as a ``NamedSharding``, or a tree of them.

    Example:
      >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
      >>> x = mark_sharding(to_jax(torch.ones(4)), jax.NamedSharding(mesh, jax.P("x")))
      >>> x.jax().sharding.shard_shape(x.shape)
      (2,)
    """
    return call_jax(jax.lax.with_sharding_constraint, x, shardings)


def make_train_step(
    model_fn: Callable[..., object], loss_fn: Callable[..., object],
    optax_optimizer: optax.GradientTransformation, remat_policy: object = None,
) -> Callable[..., tuple[TorchOutput, TorchOutput, TorchOutput]]:  # fmt: skip
    """Returns ``step(weights, buffers, opt_state, args, label) -> (loss, weights, opt_state)`` of
    tensors, to be compiled with ``jax_jit``.

    Args:
      model_fn: ``model_fn(weights, buffers, args)`` gives the model's result.
      loss_fn: ``loss_fn(result, label)`` gives the loss.
      optax_optimizer: one of optax's.
      remat_policy: without meaning, as in torchax: wrap ``model_fn`` in ``gradient_checkpoint``.

    Example:
      >>> import optax
      >>> tx, weights = optax.sgd(0.1), {"w": to_jax(torch.ones(2))}
      >>> model = lambda weights, buffers, x: weights["w"] * x
      >>> step = jax_jit(make_train_step(model, torch.nn.functional.mse_loss, tx))
      >>> opt_state = call_jax(tx.init, weights)
      >>> x, label = to_jax(torch.ones(2)), to_jax(torch.zeros(2))
      >>> loss, weights, opt_state = step(weights, {}, opt_state, x, label)
      >>> loss.item(), weights["w"].tolist()
      (1.0, [0.8999999761581421, 0.8999999761581421])
    """

    def loss(weights: PyTree, buffers: PyTree, args: PyTree, label: PyTree) -> Any:
        return loss_fn(model_fn(weights, buffers, args), label)

    value_and_grad = jax_value_and_grad(loss)

    def apply(gradient: PyTree, opt_state: PyTree, weights: PyTree) -> Any:
        updates, opt_state = optax_optimizer.update(gradient, opt_state, weights)
        add = lambda w, u: (w + u).astype(w.dtype)
        return jax.tree.map(add, weights, updates), opt_state

    def step(
        weights: PyTree, buffers: PyTree, opt_state: PyTree, args: PyTree, label: PyTree
    ) -> Any:
        value, gradient = value_and_grad(weights, buffers, args, label)
        weights, opt_state = call_jax(apply, gradient, opt_state, weights)
        return value, weights, opt_state

    return step


@overload
def compile(function: torch.nn.Module, options: None = None) -> JittableModule: ...
@overload
def compile(
    function: Callable[..., object], options: None = None
) -> Callable[..., TorchOutput]: ...


def compile(function: torch.nn.Module | Callable[..., object], options: None = None) -> Any:
    """Returns a module as a ``JittableModule``, and a function as ``jax_jit`` does.

    Args:
      function: a module, or a function of pytrees of tensors.
      options: without meaning: there are none here.

    Example:
      >>> compile(torch.nn.Linear(3, 2))(to_jax(torch.ones(4, 3))).shape
      torch.Size([4, 2])
    """
    is_module = isinstance(function, torch.nn.Module)
    return JittableModule(function) if is_module else jax_jit(function)


def enable_globally() -> NoReturn:
    """Raises Unsupported: nothing here is switched on for good.

    Example:
      >>> enable_globally()
      Traceback (most recent call last):
      anyjax.errors.Unsupported: torchax.enable_globally()...
    """
    raise Unsupported(
        "torchax.enable_globally()",
        where=diagnostics.where(),
        why="anyjax has no global switch: code that does not know of it would run differently",
        do="with anyjax.torch.on_jax(): around what makes new tensors; they go on to work after it",
    )


disable_globally = enable_globally
