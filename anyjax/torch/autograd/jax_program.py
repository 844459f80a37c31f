"""A JAX function as a node of torch's graph: what torch asks for gradients and transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax import trees
from anyjax.dtypes import x64
from anyjax.errors import Unsupported
from anyjax.torch.core import current_trace, interop, private
from anyjax.torch.core.dtypes import TO_TORCH, to_jax
from anyjax.torch.core.lifting import inner, lift
from anyjax.torch.core.schema import lowers
from anyjax.torch.core.tensor import JaxTensor, origins_of
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef

Tensors = tuple[torch.Tensor, ...]
DOUBLE = (torch.float64, torch.complex128)


def flat(
    function: Callable, structure: PyTreeDef, places: tuple[int, ...], constants: dict[int, PyTree]
) -> Callable[..., PyTree]:
    """Returns a function of pytrees as one of the arrays at these places of its arguments."""

    def of_arrays(*arrays: jax.Array) -> PyTree:
        leaves = {**constants, **dict(zip(places, arrays))}
        args, kwargs = jax.tree.unflatten(structure, [leaves[i] for i in range(len(leaves))])
        return function(*args, **kwargs)

    return of_arrays


class Program:
    """A function of arrays, compiled in the ways that torch asks for."""

    def __init__(self, function: Callable[..., PyTree]):
        self.function = function
        self.results: dict[Any, tuple[Any, list[Any]]] = {}  # structure and constants, by shapes
        self.run = jax.jit(self._arrays)
        self.with_pull = jax.jit(lambda *arrays: jax.vjp(self._arrays, *arrays))
        self.pull = jax.jit(_pulled)
        self.gradients = functools.cache(self._gradients)
        self.tangents = functools.cache(self._tangents)
        self.mapped = functools.cache(self._mapped)

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

    def _gradients(self, count: int) -> Program:
        """Returns the gradients of floats as a function of ``count`` arrays and cotangents."""

        def gradients(*arrays: jax.Array) -> list[jax.Array]:
            out, pull = jax.vjp(self._arrays, *arrays[:count])
            floats = iter(arrays[count:])
            cotangents = tuple(next(floats) if _is_float(x) else _zero(x) for x in out)
            return _of_floats(arrays[:count], _pulled(pull, cotangents))

        return Program(gradients)

    def _tangents(self, count: int) -> Program:
        """Returns the derivatives of floats as a function of ``count`` arrays and tangents."""

        def tangents(*arrays: jax.Array) -> list[jax.Array]:
            primals, floats = arrays[:count], iter(arrays[count:])
            pushed = tuple(next(floats) if _is_float(x) else _zero(x) for x in primals)
            out, derivatives = jax.jvp(self._arrays, primals, pushed)
            return _of_floats(out, derivatives)

        return Program(tangents)

    def _mapped(self, axes: tuple[int | None, ...]) -> Program:
        """Returns the function for batches, along these axes, of some of the arrays."""
        return Program(jax.vmap(self._arrays, axes))


class Applied(torch.autograd.Function):
    """A program as a node of torch's graph; ``notes`` goes from the forward pass to its context."""

    of_jax = True

    @staticmethod
    def forward(program: Program, notes: dict[str, Any], *tensors: torch.Tensor) -> Tensors:
        if _recorded(tensors):
            RECORDED[id(program)] = program
            return tuple(OPERATOR(id(program), [*tensors]))
        arrays = [interop.view_as_jax(inner(x)) for x in tensors]
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
        saved = ctx.saved_tensors  # torch's checkpoint gives them once
        tensors, outputs = saved[: ctx.count], saved[ctx.count :]
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
        tensors = ctx.saved_tensors
        pairs = [(t, x) for t, x in zip(tangents, tensors) if _differentiable(x)]
        floats = [torch.zeros_like(x) if t is None else t for t, x in pairs]
        return tuple(ctx.program.tangents(ctx.count)(*tensors, *floats))

    @staticmethod
    def vmap(info: object, axes: tuple, program: Program, notes: dict, *tensors: torch.Tensor):
        out = program.mapped(axes[2:])(*tensors)
        return tuple(out), (0,) * len(out)


# Inside of graphs that torch records, where tensors may have no memory, a program is an operator.
LIBRARY = torch.library.Library("anyjax", "DEF")
LIBRARY.define("run(int program, Tensor[] tensors) -> Tensor[]")
OPERATOR = torch.ops.anyjax.run.default
PLAIN = {torch.Tensor, torch.nn.Parameter}
RECORDED: dict[int, Program] = {}


def _recorded(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns whether torch records a graph, or these tensors may have no memory."""
    kinds = {*map(type, tensors)}
    if current_trace.active() or not kinds or any(issubclass(x, JaxTensor) for x in kinds):
        return False
    return bool(private.dispatch_modes()) or not kinds <= PLAIN


def _run(program: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    arrays = [interop.view_as_jax(x) for x in tensors]
    return [*as_tensors(RECORDED[program].run(*arrays), tensors)]


def _shapes(program: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    specs = [jax.ShapeDtypeStruct(x.shape, to_jax(x.dtype)) for x in tensors]
    outs = jax.eval_shape(RECORDED[program].run, *specs)
    return [torch.empty(x.shape, dtype=TO_TORCH[x.dtype], device="meta") for x in outs]


@lowers(OPERATOR)
def _in_trace(program, tensors):
    """The function itself."""
    return [*RECORDED[program].run(*tensors)]


LIBRARY.impl("run", _run, "CPU")
LIBRARY.impl("run", _shapes, "Meta")


def _check(tensor: torch.Tensor) -> None:
    here = tensor.device.type == "cpu" or isinstance(tensor, JaxTensor)
    if here and (tensor.dtype not in DOUBLE or x64()):
        return
    is_double = tensor.dtype in DOUBLE
    raise Unsupported(
        f"a tensor of {tensor.dtype} on {tensor.device} in a function of JAX",
        why="JAX keeps 32 bits unless x64 is on" if is_double else "it is not in the CPU's memory",
        do='call jax.config.update("jax_enable_x64", True), or pass x.float()'
        if is_double
        else "move it: x.cpu()",
    )


def refuse_tracers(arrays: Sequence[PyTree]) -> None:
    """Raises Unsupported for arrays that have no values yet, which a tensor has."""
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
    on_jax = next((x for x in map(inner, inputs) if isinstance(x, JaxTensor)), None)
    if on_jax is not None:
        tensors = [type(on_jax)(x) for x in out]
        if not current_trace.active():
            return tuple(tensors)
        origins = origins_of(map(inner, inputs))
        for tensor in tensors:
            tensor.origins = origins
        return tuple(map(lift, tensors))
    refuse_tracers(out)  # of a trace around this one
    jax.block_until_ready(out)  # JAX reads the inputs' memory until then
    seen = {x.data_ptr() for x in inputs}
    copies: list[torch.Tensor] = []
    for array in out:
        tensor = interop.view_as_torch(array)
        copies.append(tensor.clone() if tensor.data_ptr() in seen else tensor)
        seen.add(copies[-1].data_ptr())
    return tuple(copies)


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_float(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact)


def _zero(array: jax.Array) -> np.ndarray:
    """Returns the tangent of an integer."""
    return np.zeros(array.shape, jax.dtypes.float0)


def _pulled(pull: Callable, cotangents: tuple) -> Any:
    """Returns gradients as torch has them, conjugate to JAX's."""
    conjugate = lambda x: x.conj() if jnp.iscomplexobj(x) else x
    return jax.tree.map(conjugate, pull(jax.tree.map(conjugate, cotangents)))


def _of_floats(arrays: Sequence[jax.Array], values: Sequence[jax.Array]) -> list[jax.Array]:
    return [y for x, y in zip(arrays, values) if _is_float(x)]
