"""JAX functions as functions of torch tensors, with torch's gradients and transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax import trees, warn_once
from anyjax.dtypes import x64
from anyjax.errors import ManyCompilations, Unsupported
from anyjax.torch.compat.module_calls import on_tensors
from anyjax.torch.core import current_trace, interop
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.eager.tensor import EagerTensor

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef
    from jaxtyping import PyTree

    from anyjax.typing import TorchOutput

Tensors = tuple[torch.Tensor, ...]
DOUBLE = (torch.float64, torch.complex128)
MANY = 64  # values of static arguments; then programs are dropped


def from_jax(function: Callable[..., object]) -> Callable[..., TorchOutput]:
    """Returns a JAX function as a function of torch tensors.

    Gradients are JAX's (``jax.vjp``), also those of gradients; ``torch.func.grad``, ``vjp``,
    ``jvp`` and ``vmap`` work. It is compiled once for tensors of the same shapes and dtypes, and
    for other arguments of the same values. Contiguous tensors go in, and results come out, without
    a copy, with the dtypes that JAX gives them. In a model that ``anyjax.from_torch`` converts it
    is the JAX function itself again.

    Args:
      function: takes and returns any pytrees of arrays. Numbers, strings and None are static: one
        that changes with each call is given as a tensor.

    Returns:
      A function that takes tensors in the place of arrays and returns tensors.

    Raises:
      Unsupported: when it is called with a tensor that has no JAX array, such as float64 while x64
        is off, or that is not on the CPU; or while JAX traces a function around it.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> norm = anyjax.torch.from_jax(lambda x: jnp.sqrt((x**2).sum()))
      >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
      >>> norm(x).backward()
      >>> x.grad
      tensor([0.6000, 0.8000])
    """
    programs: dict[Any, Program] = {}

    @functools.wraps(function)
    def called(*args: PyTree, **kwargs: PyTree) -> Any:
        if current_trace.active():
            apply = on_tensors(lambda arguments: function(*arguments[0], **arguments[1]))
            return current_trace.trace().whole(apply, (args, kwargs))
        leaves, structure = jax.tree.flatten(trees.register((args, kwargs)))
        _refuse_tracers(leaves)
        places = tuple(i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor))
        tensors = [leaves[i] for i in places]
        constants = tuple((i, x) for i, x in enumerate(leaves) if i not in places)
        key = structure, places, _static(constants)
        if key not in programs:
            if len(programs) == MANY:
                warn_once.warn(_many(function, constants), ManyCompilations)
                programs.clear()
            programs[key] = Program(_flat(function, structure, places, dict(constants)))
        return programs[key](*tensors)

    return called


def _many(function: Callable, constants: Sequence[tuple[int, PyTree]]) -> str:
    name = getattr(function, "__name__", "the function")
    numbers = [x for _, x in constants if isinstance(x, float)]
    text = f"such as {numbers[0]:g} " if numbers else ""
    return (
        f"{name} was compiled for {MANY} values of its static arguments, {text}and begins again: "
        "give as tensors what changes from call to call"
    )


def _static(constants: Sequence[tuple[int, PyTree]]) -> tuple:
    """Returns arguments that are no tensors as a key; arrays count by identity."""
    return tuple((i, type(x), x if not trees.is_array(x) else id(x)) for i, x in constants)


def _flat(
    function: Callable, structure: PyTreeDef, places: tuple[int, ...], constants: dict[int, PyTree]
) -> Callable[..., PyTree]:
    """Returns a function of the arrays alone."""

    def flat(*arrays: jax.Array) -> PyTree:
        leaves = {**constants, **dict(zip(places, arrays))}
        args, kwargs = jax.tree.unflatten(structure, [leaves[i] for i in range(len(leaves))])
        return function(*args, **kwargs)

    return flat


class Program:
    """A function of arrays, compiled in the ways that torch asks for."""

    def __init__(self, function: Callable[..., PyTree]):
        self.function = function
        self.results: dict[Any, tuple[Any, list[Any]]] = {}  # structure and constants, by shapes
        self.run = jax.jit(self._arrays)
        self.with_pull = jax.jit(lambda *arrays: jax.vjp(self._arrays, *arrays))
        self.pull = jax.jit(lambda pull, cotangents: pull(cotangents))

    def __call__(self, *tensors: torch.Tensor) -> PyTree:
        """Returns the results as tensors."""
        for tensor in tensors:
            _check(tensor)
        key = tuple((x.shape, x.dtype) for x in tensors)
        if key not in self.results:
            specs = [jax.ShapeDtypeStruct(x.shape, to_jax(x.dtype)) for x in tensors]
            jax.eval_shape(partial(self._arrays, key=key), *specs)
        structure, leaves = self.results[key]
        requires_grad = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        notes = {"requires_grad": requires_grad}
        computed = iter(Applied.apply(self, notes, *tensors) if None in leaves else ())
        return jax.tree.unflatten(structure, [next(computed) if x is None else x for x in leaves])

    def _arrays(self, *arrays: jax.Array, key: object = None) -> tuple[jax.Array, ...]:
        """Returns the arrays of the result; its structure and constants are noted under a key."""
        leaves, structure = jax.tree.flatten(trees.plain_dicts(self.function(*arrays)))
        if key is not None:
            self.results[key] = structure, [None if trees.is_array(x) else x for x in leaves]
        return tuple(jnp.asarray(x) for x in leaves if trees.is_array(x))

    def gradients(self, count: int) -> Program:
        """Returns the gradients of floats as a function of ``count`` arrays and cotangents."""

        def gradients(*arrays: jax.Array) -> list[jax.Array]:
            out, pull = jax.vjp(self._arrays, *arrays[:count])
            floats = iter(arrays[count:])
            cotangents = tuple(next(floats) if _is_float(x) else _zero(x) for x in out)
            return _of_floats(arrays[:count], pull(cotangents))

        return Program(gradients)

    def tangents(self, count: int) -> Program:
        """Returns the derivatives of floats as a function of ``count`` arrays and tangents."""

        def tangents(*arrays: jax.Array) -> list[jax.Array]:
            primals, floats = arrays[:count], iter(arrays[count:])
            pushed = tuple(next(floats) if _is_float(x) else _zero(x) for x in primals)
            out, derivatives = jax.jvp(self._arrays, primals, pushed)
            return _of_floats(out, derivatives)

        return Program(tangents)

    def mapped(self, axes: tuple[int | None, ...]) -> Program:
        """Returns the function for batches, along these axes, of some of the arrays."""
        return Program(jax.vmap(self._arrays, axes))


class Applied(torch.autograd.Function):
    """A program as a node of torch's graph; ``notes`` goes from the forward pass to its context."""

    @staticmethod
    def forward(program: Program, notes: dict[str, Any], *tensors: torch.Tensor) -> Tensors:
        arrays = [interop.view_as_jax(x) for x in tensors]
        if not notes["requires_grad"]:
            return as_tensors(program.run(*arrays), tensors)
        out, notes["pull"] = program.with_pull(*arrays)
        return as_tensors(out, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensors) -> None:
        ctx.program, notes, *tensors = inputs
        ctx.pull, ctx.count = notes.get("pull"), len(tensors)
        ctx.save_for_backward(*tensors, *output)  # torch refuses a gradient once one is written to
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*(x for x in output if not _differentiable(x)))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        tensors, outputs = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        grads = tuple(torch.zeros_like(x) if g is None else g for g, x in zip(grads, outputs))
        if ctx.pull is None or torch.is_grad_enabled():  # a gradient of this is asked for, too
            floats = [g for g, x in zip(grads, outputs) if _differentiable(x)]
            computed = iter(ctx.program.gradients(ctx.count)(*tensors, *floats))
        else:
            views = (interop.view_as_jax(g.contiguous()) for g in grads)
            cotangents = tuple(g if _is_float(g) else _zero(g) for g in views)
            pulled = ctx.program.pull(ctx.pull, cotangents)
            pairs = zip(tensors, pulled)
            computed = iter(as_tensors([g for x, g in pairs if _differentiable(x)], grads))
        return None, None, *(next(computed) if _differentiable(x) else None for x in tensors)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: torch.Tensor | None) -> Tensors:
        pairs = [(t, x) for t, x in zip(tangents, ctx.saved_tensors) if _differentiable(x)]
        floats = [torch.zeros_like(x) if t is None else t for t, x in pairs]
        return tuple(ctx.program.tangents(ctx.count)(*ctx.saved_tensors, *floats))

    @staticmethod
    def vmap(info: object, axes: tuple, program: Program, notes: dict, *tensors: torch.Tensor):
        out = program.mapped(axes[2:])(*tensors)
        return tuple(out), (0,) * len(out)


def _check(tensor: torch.Tensor) -> None:
    if tensor.device.type == "cpu" and (tensor.dtype not in DOUBLE or x64()):
        return
    is_double = tensor.dtype in DOUBLE
    raise Unsupported(
        f"a tensor of {tensor.dtype} on {tensor.device} in a function of JAX",
        why="JAX keeps 32 bits unless x64 is on" if is_double else "it is not in the CPU's memory",
        do='call jax.config.update("jax_enable_x64", True), or pass x.float()'
        if is_double
        else "move it: x.cpu()",
    )


def _refuse_tracers(arrays: Sequence[PyTree]) -> None:
    tracer = next((x for x in arrays if isinstance(x, jax.core.Tracer)), None)
    if tracer is not None:
        raise Unsupported(
            f"a tracer of JAX, {tracer.aval.str_short()}, becomes a torch tensor",
            why="a function that JAX traces has no values yet, and a tensor has them",
            do="call the JAX function itself there; torch modules run in JAX by anyjax.from_torch",
        )


def as_tensors(out: Sequence[jax.Array], inputs: Sequence[torch.Tensor]) -> Tensors:
    """Returns results as tensors in their own memory; those that are inputs, or each other, as
    copies. Where inputs are on JAX, so are results.
    """
    if any(isinstance(x, EagerTensor) for x in inputs):
        return tuple(map(EagerTensor, out))
    _refuse_tracers(out)  # of a trace around this one
    jax.block_until_ready(out)  # JAX reads the inputs' memory until then
    seen = {x.data_ptr() for x in inputs}
    tensors: list[torch.Tensor] = []
    for array in out:
        tensor = interop.view_as_torch(array)
        tensors.append(tensor.clone() if tensor.data_ptr() in seen else tensor)
        seen.add(tensors[-1].data_ptr())
    return tuple(tensors)


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_float(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact)


def _zero(array: jax.Array) -> np.ndarray:
    """Returns the tangent of an integer."""
    return np.zeros(array.shape, jax.dtypes.float0)


def _of_floats(arrays: Sequence[jax.Array], values: Sequence[jax.Array]) -> list[jax.Array]:
    return [y for x, y in zip(arrays, values) if _is_float(x)]
