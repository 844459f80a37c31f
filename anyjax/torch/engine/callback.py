"""``on_missing="callback"``: an operator without a lowering runs in torch, on the CPU, as a
callback of the compiled program. Its gradients are torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
import torch
from torch.utils._pytree import tree_unflatten

from anyjax import warn_once
from anyjax.dtypes import is_float
from anyjax.errors import DataDependent, TorchCallback, Unsupported, WrongArguments
from anyjax.torch.core import diagnostics, dtypes, interop, sizes, strides
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import JaxTensor, origins_of

# A thread without the modes of a trace, which may be going on in the one that asks.
WORKER = ThreadPoolExecutor(1, "anyjax-callback")
SAID: set[Any] = set()
Seed: TypeAlias = "np.ndarray | jax.Array | None"  # of torch's generator


class Callback:
    """One call of an operator: what is static of it, and how arrays become tensors and back."""

    def __init__(self, op, args, kwargs):
        self.op = op
        leaves, self.structure = flatten((args, kwargs))
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.dtypes = [leaves[i].dtype for i in self.places]
        self.arrays = [array_of(leaves[i]) for i in self.places]
        self.static = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.shapes = self._shapes(args, kwargs)

    def _shapes(self, args, kwargs):
        """Returns the outputs on torch's meta device."""
        args, kwargs = map_tensors(strides.to_meta, (args, kwargs))
        try:
            return self.op(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            raise DataDependent(
                f"{self.op} cannot be a callback: torch does not tell the shape of its result",
                where=diagnostics.where(),
                why=str(error).splitlines()[0],
                do="register a shape function (torch.library.register_fake), or a lowering",
            ) from error

    def run(self, seed: Seed, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the outputs of torch's kernel."""
        full = list(self.static)
        for place, tensor in zip(self.places, tensors):
            full[place] = tensor
        args, kwargs = tree_unflatten(full, self.structure)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(int(seed))
            out = self.op(*args, **kwargs)
        return [x for x in flatten(out)[0] if isinstance(x, torch.Tensor)]


class Computed(NamedTuple):
    """A computation of torch: an operator, its derivative, the derivative of that, ...

    Attributes:
      run: ``run(seed, tensors)``, the results.
      dtypes: those of the tensors, and ``out`` those of the results.
      specs: the results as JAX has them.
    """

    run: Callable[[Seed, list[torch.Tensor]], Sequence[torch.Tensor]]
    dtypes: list[torch.dtype]
    out: list[torch.dtype]
    specs: list[jax.ShapeDtypeStruct]

    def __call__(self, seed: jax.Array | None, arrays: Sequence[jax.Array]) -> Sequence[jax.Array]:
        """Returns the results, with gradients of any order."""

        @jax.custom_vjp
        def primal(seed, arrays):
            return jax.pure_callback(
                off_thread(self.on_host), self.specs, seed, *arrays, vmap_method="sequential"
            )

        def backward(saved, cotangents):
            seed, arrays = saved
            pull = self.derivative(arrays)
            moving = [c for c, s in zip(cotangents, self.specs) if is_float(s.dtype)]
            grads = iter(pull(seed, [*arrays, *moving]))
            zero = lambda a: np.zeros(a.shape, jax.dtypes.float0)
            none = None if seed is None else zero(seed)
            return none, [next(grads) if is_float(a.dtype) else zero(a) for a in arrays]

        primal.defvjp(lambda seed, arrays: (primal(seed, arrays), (seed, arrays)), backward)
        return primal(seed, arrays)

    def on_host(self, seed: Seed, *arrays: jax.Array) -> list[np.ndarray]:
        tensors = [interop.to_torch(a).to(d) for a, d in zip(arrays, self.dtypes)]
        with torch.no_grad():
            return [to_numpy(x) for x in self.run(seed, tensors)]

    def derivative(self, arrays: Sequence[jax.Array]) -> Computed:
        """Returns what computes the gradients of the floating-point arrays, of these and of the
        results' gradients.
        """
        inputs = [i for i, a in enumerate(arrays) if is_float(a.dtype)]
        outputs = [i for i, s in enumerate(self.specs) if is_float(s.dtype)]

        def pull(seed: Seed, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            follows = any(x.requires_grad for x in tensors)  # a derivative of this one is computed
            operands, grads = tensors[: len(arrays)], tensors[len(arrays) :]
            with torch.enable_grad():
                for i in inputs:
                    x = operands[i]
                    operands[i] = x if x.requires_grad else x.detach().requires_grad_()
                outs = self.run(seed, operands)
                used = [(outs[i], g) for i, g in zip(outputs, grads) if outs[i].requires_grad]
                return torch.autograd.grad(
                    [out for out, _ in used],
                    [operands[i] for i in inputs],
                    [grad for _, grad in used],
                    allow_unused=True,
                    materialize_grads=True,
                    create_graph=follows,
                )

        dtypes_of_both = self.dtypes + [self.out[i] for i in outputs]
        specs = [jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in inputs]
        return Computed(pull, dtypes_of_both, [self.dtypes[i] for i in inputs], specs)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values as JAX has them, with 64 bits narrowed where they are in JAX."""
    return np.asarray(interop.to_jax(tensor.detach()))


def off_thread(function):
    """Calls the function in the worker thread, on numpy arrays."""

    def call(*args):
        return WORKER.submit(function, *jax.tree.map(np.asarray, args)).result()

    return call


def call_torch(op, args, kwargs, key) -> Any:
    """Returns the operator's outputs as tensors of the trace.

    Args:
      key: seeds torch's generator where the operator is random, else None.
    """
    if op not in SAID:
        SAID.add(op)
        warn_once.warn(
            f"{op} has no lowering and runs in torch on the CPU, as a callback "
            f"({diagnostics.where()})",
            TorchCallback,
        )
    call = Callback(op, args, kwargs)
    arrays, call.arrays = call.arrays, []  # the program keeps the call, not tracers
    outs = [x for x in flatten(call.shapes)[0] if isinstance(x, torch.Tensor)]
    if any(sizes.symbolic(x.shape) for x in outs):
        raise Unsupported(
            f"{op} runs in torch as a callback, and its result has an open size",
            where=diagnostics.where(),
            why="a callback is told the shapes of its results when the program is compiled",
            do="leave that size out of shapes=, or register a lowering of the operator",
        )
    specs = [jax.ShapeDtypeStruct(tuple(t.shape), dtypes.to_jax(t.dtype)) for t in outs]
    computed = Computed(call.run, call.dtypes, [t.dtype for t in outs], specs)
    seed = jax.random.bits(key, dtype=np.uint32) if key is not None else None
    results = iter(zip(computed(seed, arrays), outs))
    origins = origins_of(flatten((args, kwargs))[0])

    def wrap(_):
        array, tensor = next(results)
        return JaxTensor(array, tensor.dtype, origins)

    return map_tensors(wrap, call.shapes)


def check_on_missing(value: str) -> None:
    """Raises WrongArguments for another word than the two that there are."""
    if value not in ("error", "callback"):
        raise WrongArguments(
            f"on_missing={value!r}",
            why="an operator without a lowering is an error or a callback",
            do='give "error" or "callback"',
        )
