"""torchax's names for its users: the same functions, with no switch that stays behind.

Arrays and tensors are two views of the same values: ``torch_view`` and ``jax_view`` cross over, in
any pytree, and nothing is copied. Functions cross over, too: torch code that JAX calls, compiles or
differentiates, and JAX's functions on tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
import torch

from tojax import trees
from tojax.errors import Unsupported
from tojax.torch.core import diagnostics, dtypes
from tojax.torch.core.keys import Keys
from tojax.torch.eager import random_keys
from tojax.torch.eager.environment import Environment
from tojax.torch.eager.mode import on_jax
from tojax.torch.eager.moved import to_jax
from tojax.torch.eager.tensor import EagerTensor
from tojax.torch.jax_function import from_jax
from tojax.torch.torchax import extract_jax

__all__ = [
    "JittableModule", "call_jax", "call_torch", "compile", "default_env", "disable_globally",
    "enable_globally", "extract_jax", "fori_loop", "gradient_checkpoint", "j2t_autograd", "jax_jit",
    "jax_shard_map", "jax_value_and_grad", "jax_view", "jax_view_elem", "jit", "make_train_step",
    "mark_sharding", "remat", "to_jax", "torch_view", "torch_view_elem", "wrap_jax_jit",
]  # fmt: skip

Function = TypeVar("Function", bound=Callable[..., Any])
SEED = "tojax_seed"  # the argument of a compiled function that its random numbers come from
_ENVIRONMENT = Environment()


def default_env() -> Environment:
    """Returns the environment: ``with default_env():`` is ``with tojax.torch.on_jax():``.

    Example:
      >>> import torch
      >>> with default_env():
      ...     torch.ones(2).jax()
      Array([1., 1.], dtype=float32)
    """
    return _ENVIRONMENT


def torch_view_elem(value: Any) -> Any:
    """Returns what torch code takes for a value of JAX: a tensor around an array, without a copy; a
    ``torch.dtype`` for a dtype; a function of tensors (``call_jax``) for a function. Anything else
    stays.

    Without ``jax_enable_x64``, integers of 32 bits are ``torch.int64``, as torch code expects.
    """
    if isinstance(value, jax.Array):
        return EagerTensor(value)
    if isinstance(value, np.dtype):
        return dtypes.TO_TORCH[value]
    return functools.partial(call_jax, value) if callable(value) else value


def jax_view_elem(value: Any) -> Any:
    """Returns what JAX takes for a value of torch: the array of a tensor, without a copy and
    without its history; a dtype for a ``torch.dtype``; a function of arrays (``call_torch``) for a
    function. Modules, and anything else, stay.

    Raises:
      Unsupported: a tensor is not on JAX.
    """
    if isinstance(value, EagerTensor):
        return value.jax()
    if isinstance(value, torch.Tensor):
        raise Unsupported(
            f"a {value.dtype}{[*value.shape]} of torch in the place of a tensor on JAX",
            where=diagnostics.where(),
            why="it has no array, and to make one is a copy",
            do="move it once: tojax.torch.interop.to_jax(x)",
        )
    if isinstance(value, torch.dtype):
        return dtypes.to_jax(value)
    is_function = callable(value) and not isinstance(value, torch.nn.Module)
    return functools.partial(call_torch, value) if is_function else value


def torch_view(tree: Any) -> Any:
    """Returns a pytree with torch's views of its leaves, see ``torch_view_elem``.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> array = jnp.ones(3)
      >>> x = torch_view({"x": array})["x"]
      >>> isinstance(x, torch.Tensor), x.jax() is array
      (True, True)
    """
    return jax.tree.map(torch_view_elem, trees.register(tree))


def jax_view(tree: Any) -> Any:
    """Returns a pytree with JAX's views of its leaves, see ``jax_view_elem``.

    Example:
      >>> jax_view(torch_view(jax.numpy.ones(2)))
      Array([1., 1.], dtype=float32)
    """
    is_leaf = lambda x: isinstance(x, torch.Tensor)
    return jax.tree.map(jax_view_elem, trees.register(tree), is_leaf=is_leaf)


def call_jax(jax_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function of JAX with tensors; returns tensors, through which no gradient comes:
    ``j2t_autograd`` is for that.

    Example:
      >>> import jax.numpy as jnp
      >>> call_jax(jnp.sum, torch_view(jnp.arange(4.0))).item()
      6.0
    """
    args, kwargs = jax_view((args, kwargs))
    return torch_view(jax_func(*args, **kwargs))


def call_torch(torch_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function of torch with arrays, inside ``on_jax``; returns arrays.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> jax.grad(lambda x: call_torch(torch.sum, x**2))(jnp.array([1.0, 2.0]))
      Array([2., 4.], dtype=float32)
    """
    args, kwargs = torch_view((args, kwargs))
    with on_jax():
        return jax_view(torch_func(*args, **kwargs))


def j2t_autograd(
    fn: Callable[..., Any], call_jax: Callable[..., Any] = call_jax
) -> Callable[..., Any]:
    """Returns a function of JAX as a function of tensors, with JAX's gradients for torch's autograd.

    Args:
      fn: takes and returns any pytrees of arrays.
      call_jax: torchax's way to run JAX elsewhere; there is no other here than ``call_jax``.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> x = to_jax(torch.tensor([3.0, 4.0], requires_grad=True))
      >>> j2t_autograd(jnp.linalg.norm)(x).backward()
      >>> x.grad.tolist()
      [0.6000000238418579, 0.800000011920929]
    """
    if call_jax is not globals()["call_jax"]:
        raise Unsupported(
            "j2t_autograd with a call_jax of its own",
            why="the function runs where its arrays are",
            do="leave call_jax out",
        )
    return from_jax(fn)


def wrap_jax_jit(
    torch_function: Callable[..., Any],
    jax_jit_func: Callable[..., Any] = jax.jit,
    kwargs_for_jax: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Returns a function of tensors that a transformation of JAX was applied to.

    Where the transformation is ``jax.jit`` or ``jax.checkpoint``, each call brings a seed of
    torch's generator along, so that no call repeats the random numbers of another. With
    ``in_shardings``, which leave no place for it, random numbers need ``on_jax(rng=key)``.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> double = wrap_jax_jit(lambda x: x + x, jax.jit)
      >>> double(torch_view(jnp.ones(2))).tolist()
      [2.0, 2.0]
    """
    options = kwargs_for_jax or {}
    seeded = jax_jit_func in (jax.jit, jax.checkpoint) and "in_shardings" not in options

    @functools.wraps(torch_function)
    def on_arrays(*args: Any, **kwargs: Any) -> Any:
        seed = kwargs.pop(SEED, None)
        keys = None if seed is None else Keys(random_keys.as_key(seed))
        with random_keys.drawing(keys):
            return call_torch(torch_function, *args, **kwargs)

    transformed = jax_jit_func(on_arrays, **options)

    @functools.wraps(torch_function)
    def on_tensors(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = jax_view((args, kwargs))
        if seeded and (seed := random_keys.drawn()) is not None:
            kwargs[SEED] = seed
        return torch_view(transformed(*args, **kwargs))

    return on_tensors


def jax_jit(
    torch_function: Callable[..., Any],
    kwargs_for_jax_jit: dict[str, Any] | None = None,
    fix_for_buffer_donation: bool = False,
) -> Callable[..., Any]:
    """Returns a function of tensors as one program that ``jax.jit`` compiles.

    Args:
      torch_function: takes and returns pytrees of tensors; weights are arguments
        (``torch.func.functional_call``), for those that it closes over are constants.
      kwargs_for_jax_jit: such as ``donate_argnums``, ``static_argnums``.
      fix_for_buffer_donation: without meaning, as in torchax.

    Example:
      >>> import torch
      >>> with default_env():
      ...     model, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
      >>> step = jax_jit(lambda weights, x: torch.func.functional_call(model, weights, x))
      >>> step(model.state_dict(), x).shape
      torch.Size([4, 2])
    """
    return wrap_jax_jit(torch_function, jax.jit, kwargs_for_jax_jit)


jit = jax_jit


def jax_shard_map(
    torch_function: Callable[..., Any], kwargs_for_jax_shard_map: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Returns a function of tensors under ``jax.shard_map``, which takes mesh and specs."""
    return wrap_jax_jit(torch_function, jax.shard_map, kwargs_for_jax_shard_map)


def jax_value_and_grad(
    torch_function: Callable[..., Any], kwargs_for_value_and_grad: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Returns a function of tensors that gives a value and, by JAX, its gradients.

    Example:
      >>> import torch
      >>> value, grad = jax_value_and_grad(lambda x: (x**2).sum())(to_jax(torch.ones(2)))
      >>> value.item(), grad.tolist()
      (2.0, [2.0, 2.0])
    """
    return wrap_jax_jit(torch_function, jax.value_and_grad, kwargs_for_value_and_grad)


def gradient_checkpoint(
    torch_function: Callable[..., Any], kwargs: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Returns a function of tensors that is computed again for JAX's gradients
    (``jax.checkpoint``); ``kwargs`` such as ``policy`` are its.
    """
    return wrap_jax_jit(torch_function, jax.checkpoint, kwargs)


fori_loop = torch_view(jax.lax.fori_loop)
remat = torch_view(jax.checkpoint)
mark_sharding = torch_view(jax.lax.with_sharding_constraint)


def make_train_step(
    model_fn: Callable[..., Any], loss_fn: Callable[..., Any], optax_optimizer: Any,
    remat_policy: Any = None,
) -> Callable[..., Any]:  # fmt: skip
    """Returns ``step(weights, buffers, opt_state, args, label) -> (loss, weights, opt_state)`` of
    tensors, to be compiled with ``jax_jit``.

    Args:
      model_fn: ``model_fn(weights, buffers, args)`` gives the model's result.
      loss_fn: ``loss_fn(result, label)`` gives the loss.
      optax_optimizer: one of optax's.
      remat_policy: without meaning, as in torchax: wrap ``model_fn`` in ``gradient_checkpoint``.
    """

    def loss(weights: Any, buffers: Any, args: Any, label: Any) -> Any:
        return loss_fn(model_fn(weights, buffers, args), label)

    value_and_grad = jax_value_and_grad(loss)

    def apply(gradient: Any, opt_state: Any, weights: Any) -> Any:
        updates, opt_state = optax_optimizer.update(gradient, opt_state, weights)
        add = lambda w, u: (w + u).astype(w.dtype)
        return jax.tree.map(add, weights, updates), opt_state

    def step(weights: Any, buffers: Any, opt_state: Any, args: Any, label: Any) -> Any:
        value, gradient = value_and_grad(weights, buffers, args, label)
        weights, opt_state = call_jax(apply, gradient, opt_state, weights)
        return value, weights, opt_state

    return step


class _Method(torch.nn.Module):
    """A method of a module as the forward of another one."""

    def __init__(self, model: torch.nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class JittableModule(torch.nn.Module):
    """A module whose methods run as programs that ``jax.jit`` compiles, ``forward`` by itself.

    Buffers that a method writes to, such as BatchNorm's statistics, are written to in ``buffers``.
    torch's autograd does not see into a program; ``functional_call`` is for JAX's gradients.

    Attributes:
      params, buffers: tensors on JAX by name; tied parameters have one name.

    Args:
      m: the module.
      extra_jit_args: those of ``jax.jit``.
      dedup_parameters: whether tied parameters stay tied.

    Example:
      >>> import torch
      >>> model = JittableModule(torch.nn.Linear(3, 2))
      >>> model(to_jax(torch.ones(4, 3))).shape
      torch.Size([4, 2])
    """

    def __init__(
        self, m: torch.nn.Module, extra_jit_args: dict[str, Any] | None = None,
        dedup_parameters: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.__dict__["_model"] = m
        self._options, self._jitted = extra_jit_args or {}, {}
        tied = dict(remove_duplicate=dedup_parameters)
        self.params = to_jax(dict(m.named_parameters(**tied)))
        self.buffers = to_jax(dict(m.named_buffers(**tied)))

    @property
    def __class__(self) -> type:  # so that isinstance is about the module inside
        return type(self._model)

    def functional_call(
        self, method_or_name: str | Callable[..., Any], params: dict[str, torch.Tensor],
        buffers: dict[str, torch.Tensor], *args: Any, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Calls a method, or a function of the module, with these params and buffers."""
        by_name = isinstance(method_or_name, str)
        method = getattr(self._model, method_or_name) if by_name else (
            functools.partial(method_or_name, self._model))
        tensors = {f"model.{name}": x for name, x in (params | buffers).items()}
        return torch.func.functional_call(_Method(self._model, method), tensors, args, kwargs)

    def make_jitted(self, key: str) -> None:
        """Compiles the method of this name from now on."""

        def method(params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
            return self.functional_call(key, params, buffers, *args, **kwargs), buffers

        jitted = jax_jit(method, self._options)

        def call(*args: Any, **kwargs: Any) -> Any:
            out, written = jitted(self.params, self.buffers, *args, **kwargs)
            for name, tensor in written.items():
                self.buffers[name].array = tensor.array
            return out

        self._jitted[key] = call

    def jittable_call(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method as a compiled program."""
        if method_name not in self._jitted:
            self.make_jitted(method_name)
        return self._jitted[method_name](*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module's forward as a compiled program."""
        return self.jittable_call("forward", *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __getattr__(self, key: str) -> Any:
        jitted = self.__dict__.get("_jitted", {})
        return jitted[key] if key in jitted else getattr(self.__dict__["_model"], key)


def compile(function: Any, options: None = None) -> Any:
    """Returns a module as a ``JittableModule``, and a function as ``jax_jit`` does."""
    is_module = isinstance(function, torch.nn.Module)
    return JittableModule(function) if is_module else jax_jit(function)


def enable_globally() -> NoReturn:
    """Raises Unsupported: nothing here is switched on for good."""
    raise Unsupported(
        "torchax.enable_globally()",
        where=diagnostics.where(),
        why="tojax has no global switch: code that does not know of it would run differently",
        do="with tojax.torch.on_jax(): around what makes new tensors; tensors go on to work after it",
    )


disable_globally = enable_globally
