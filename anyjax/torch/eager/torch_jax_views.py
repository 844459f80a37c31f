"""Values and functions that cross over between torch and JAX, where tensors are views of arrays."""

# torch is Any here (pyproject.toml), in which all overloads are one.
# mypy: disable-error-code="overload-cannot-match, overload-overlap"

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, overload

import jax
import numpy as np
import torch

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics, dtypes
from anyjax.torch.eager import random_keys
from anyjax.torch.eager.run import EagerRun, collected, require
from anyjax.torch.eager.tensor import KIND, EagerTensor, keeping_class
from anyjax.typing import M, Output, PyTree, T, TorchOutput


@overload
def torch_view_elem(value: jax.Array) -> torch.Tensor: ...
@overload
def torch_view_elem(value: np.dtype[Any]) -> torch.dtype: ...
@overload
def torch_view_elem(value: Callable[..., object]) -> Callable[..., TorchOutput]: ...
@overload
def torch_view_elem(value: T) -> T: ...


def torch_view_elem(value: object) -> Any:
    """Returns what torch code takes for a value of JAX: a tensor around an array, without a copy; a
    ``torch.dtype`` for a dtype; a function of tensors (``call_jax``) for a function. Anything else
    stays.

    Without ``jax_enable_x64``, integers of 32 bits are ``torch.int64``, as torch code expects.

    Example:
      >>> torch_view_elem(jax.numpy.arange(2)).dtype, torch_view_elem(np.dtype("float16"))
      (torch.int64, torch.float16)
    """
    if isinstance(value, jax.Array):
        return EagerTensor(value)
    if isinstance(value, np.dtype):
        return dtypes.TO_TORCH[value]
    return keeping_class(functools.partial(call_jax, value)) if callable(value) else value


@overload
def jax_view_elem(value: torch.Tensor) -> jax.Array: ...
@overload
def jax_view_elem(value: torch.dtype) -> np.dtype[Any]: ...
@overload
def jax_view_elem(value: M) -> M: ...
@overload
def jax_view_elem(value: Callable[..., object]) -> Callable[..., Output]: ...
@overload
def jax_view_elem(value: T) -> T: ...


def jax_view_elem(value: Any) -> Any:
    """Returns what JAX takes for a value of torch: the array of a tensor, without a copy and
    without its history; a dtype for a ``torch.dtype``; a function of arrays (``call_torch``) for a
    function. Modules, and anything else, stay.

    Raises:
      Unsupported: a tensor is not on JAX.

    Example:
      >>> jax_view_elem(torch.bfloat16), jax_view_elem("text")
      (dtype(bfloat16), 'text')
    """
    if isinstance(value, EagerTensor):
        return value.jax()
    if isinstance(value, torch.Tensor):
        raise Unsupported(
            f"a {value.dtype}{[*value.shape]} of torch in the place of a tensor on JAX",
            where=diagnostics.where(),
            why="it has no array, and to make one is a copy",
            do="move it once: anyjax.torch.interop.to_jax(x)",
        )
    if isinstance(value, torch.dtype):
        return dtypes.to_jax(value)
    is_function = callable(value) and not isinstance(value, torch.nn.Module)
    return keeping_class(functools.partial(call_torch, value)) if is_function else value


@overload
def torch_view(tree: Callable[..., object]) -> Callable[..., TorchOutput]: ...
@overload
def torch_view(tree: object) -> TorchOutput: ...


def torch_view(tree: object) -> Any:
    """Returns a pytree with torch's views of its leaves, see ``torch_view_elem``.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> array = jnp.ones(3)
      >>> x = torch_view({"x": array})["x"]
      >>> isinstance(x, torch.Tensor), x.jax() is array
      (True, True)
    """
    return jax.tree.map(torch_view_elem, trees.register(tree))


@overload
def jax_view(tree: M) -> M: ...
@overload
def jax_view(tree: Callable[..., object]) -> Callable[..., Output]: ...
@overload
def jax_view(tree: object) -> Output: ...


def jax_view(tree: object) -> Any:
    """Returns a pytree with JAX's views of its leaves, see ``jax_view_elem``.

    Example:
      >>> jax_view(torch_view(jax.numpy.ones(2)))
      Array([1., 1.], dtype=float32)
    """
    is_leaf = lambda x: isinstance(x, torch.Tensor)
    return jax.tree.map(jax_view_elem, trees.register(tree), is_leaf=is_leaf)


def call_jax(jax_func: Callable[..., object], *args: Any, **kwargs: Any) -> TorchOutput:
    """Calls a function of JAX with tensors; returns tensors, through which no gradient comes:
    ``j2t_autograd`` is for that.

    Example:
      >>> import jax.numpy as jnp
      >>> call_jax(jnp.sum, torch_view(jnp.arange(4.0))).item()
      6.0
    """
    args, kwargs = jax_view((args, kwargs))
    return torch_view(jax_func(*args, **kwargs))


def call_torch(torch_func: Callable[..., object], *args: Any, **kwargs: Any) -> Output:
    """Calls a function of torch with arrays, inside ``on_jax``; returns arrays.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> jax.grad(lambda x: call_torch(torch.sum, x**2))(jnp.array([1.0, 2.0]))
      Array([2., 4.], dtype=float32)
    """
    with EagerRun.inside():  # whatever transformation of JAX this is in
        return _on_arrays(torch_func, args, kwargs)


def _on_arrays(function: Callable[..., object], args: PyTree, kwargs: PyTree) -> Any:
    args, kwargs = torch_view((args, kwargs))
    with (KIND.get() or EagerTensor).context():
        out: Any = function(*args, **kwargs)
        return jax_view(out)


def wrap_jax_jit(
    torch_function: Callable[..., object],
    jax_jit_func: Callable[..., Callable[..., object]] = jax.jit,
    kwargs_for_jax: Mapping[str, object] | None = None,
) -> Callable[..., TorchOutput]:
    """Returns a function of tensors that a transformation of JAX was applied to.

    Where the transformation is ``jax.jit`` or ``jax.checkpoint``, each call brings a seed of
    torch's generator along, so that no call repeats the random numbers of another.

    Args:
      torch_function: takes and returns pytrees of tensors.
      jax_jit_func: the transformation, which takes a function of arrays.
      kwargs_for_jax: its options.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> double = wrap_jax_jit(lambda x: x + x, jax.jit)
      >>> double(torch_view(jnp.ones(2))).tolist()
      [2.0, 2.0]
    """
    options = dict(kwargs_for_jax or {})
    seeded = jax_jit_func in (jax.jit, jax.checkpoint)
    checked = jax_jit_func is jax.jit and "out_shardings" not in options

    @functools.wraps(torch_function)
    def on_arrays(*args: PyTree, **kwargs: PyTree) -> Any:
        *operands, seed = args if seeded else (*args, None)
        keys = None if seed is None else random_keys.Seeded(random_keys.as_key(seed))
        with random_keys.drawing(keys), collected() if checked else EagerRun.inside() as holds:
            out = _on_arrays(torch_function, (*operands,), kwargs)
        return (out, holds) if checked else out

    @functools.cache
    def transformed(count: int, dtype: torch.dtype) -> Any:
        """Returns the function of this many arguments, and of a seed after them, for numbers of
        this dtype.
        """
        function = functools.partial(on_arrays)  # JAX keeps programs by the function
        if not seeded or "in_shardings" not in options:
            return jax_jit_func(function, **options)
        of = options["in_shardings"]
        of = of if isinstance(of, (tuple, list)) else [of] * count
        return jax_jit_func(function, **options | {"in_shardings": (*of, None)})

    @functools.wraps(torch_function)
    def on_tensors(*args: PyTree, **kwargs: PyTree) -> Any:
        args, kwargs = jax_view((args, kwargs))
        seed = (random_keys.drawn(),) if seeded else ()
        out = transformed(len(args), torch.get_default_dtype())(*args, *seed, **kwargs)
        if checked:
            out, holds = out
            require(holds)
        return torch_view(out)

    return keeping_class(on_tensors)


def jax_jit(
    torch_function: Callable[..., object],
    kwargs_for_jax_jit: Mapping[str, object] | None = None,
    fix_for_buffer_donation: bool = False,
) -> Callable[..., TorchOutput]:
    """Returns a function of tensors as one program that ``jax.jit`` compiles.

    Args:
      torch_function: takes and returns pytrees of tensors; weights are arguments
        (``torch.func.functional_call``), for those that it closes over are constants.
      kwargs_for_jax_jit: such as ``donate_argnums``, ``static_argnums``.
      fix_for_buffer_donation: without meaning, as in torchax.

    Example:
      >>> import torch
      >>> with anyjax.torch.on_jax():
      ...     model, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
      >>> step = jax_jit(lambda weights, x: torch.func.functional_call(model, weights, x))
      >>> step(model.state_dict(), x).shape
      torch.Size([4, 2])
    """
    return wrap_jax_jit(torch_function, jax.jit, kwargs_for_jax_jit)


def jax_shard_map(
    torch_function: Callable[..., object],
    kwargs_for_jax_shard_map: Mapping[str, object] | None = None,
) -> Callable[..., TorchOutput]:
    """Returns a function of tensors under ``jax.shard_map``.

    Args:
      torch_function: takes and returns tensors, the part of one device.
      kwargs_for_jax_shard_map: its options, such as ``mesh``, ``in_specs`` and ``out_specs``.

    Example:
      >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
      >>> options = {"mesh": mesh, "in_specs": jax.P("x"), "out_specs": jax.P("x")}
      >>> total = jax_shard_map(lambda part: part.sum()[None], options)
      >>> total(torch_view(jax.numpy.arange(4.0))).tolist()  # of the part of each device
      [1.0, 5.0]
    """
    return wrap_jax_jit(torch_function, jax.shard_map, kwargs_for_jax_shard_map)


def jax_value_and_grad(
    torch_function: Callable[..., object],
    kwargs_for_value_and_grad: Mapping[str, object] | None = None,
) -> Callable[..., TorchOutput]:
    """Returns a function of tensors that gives a value and, by JAX, its gradients.

    Args:
      torch_function: takes pytrees of tensors and returns a float (), or what ``has_aux`` says.
      kwargs_for_value_and_grad: options of ``jax.value_and_grad``, such as ``argnums``.

    Example:
      >>> value, grad = jax_value_and_grad(lambda x: (x**2).sum())(torch_view(jax.numpy.ones(2)))
      >>> value.item(), grad.tolist()
      (2.0, [2.0, 2.0])
    """
    return wrap_jax_jit(torch_function, jax.value_and_grad, kwargs_for_value_and_grad)


def gradient_checkpoint(
    torch_function: Callable[..., object], kwargs: Mapping[str, object] | None = None
) -> Callable[..., TorchOutput]:
    """Returns a function of tensors that is computed again for JAX's gradients.

    Args:
      torch_function: takes and returns tensors.
      kwargs: options of ``jax.checkpoint``, such as ``policy``.

    Example:
      >>> square = gradient_checkpoint(lambda x: (x**2).sum())
      >>> value, grad = jax_value_and_grad(square)(torch_view(jax.numpy.ones(2)))
      >>> grad.tolist()
      [2.0, 2.0]
    """
    return wrap_jax_jit(torch_function, jax.checkpoint, kwargs)
