"""``on_missing="callback"``: an operator without a lowering runs in torch, on the CPU, as a
callback of the compiled program. Its gradient is torch's own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._pytree import tree_unflatten

from anyjax import warn_once
from anyjax.dtypes import is_float
from anyjax.errors import DataDependent, TorchCallback, WrongArguments
from anyjax.torch.core import diagnostics, dtypes, interop, strides
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import JaxTensor, origins_of

# A thread without the modes of a trace, which may be going on in the one that asks.
WORKER = ThreadPoolExecutor(1, "anyjax-callback")
SAID: set[Any] = set()


class Callback:
    """One call of an operator: what is static of it, and how arrays become tensors and back."""

    def __init__(self, op, args, kwargs):
        self.op = op
        leaves, self.structure = flatten((args, kwargs))
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.given = [leaves[i].dtype for i in self.places]
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

    def run(self, seed, arrays, grad=()):
        """(tensors given, outputs) of torch's kernel; those at ``grad`` ask for a gradient."""
        tensors = [interop.to_torch(a).to(d) for a, d in zip(arrays, self.given)]
        for i in grad:
            tensors[i].requires_grad_()
        full = list(self.static)
        for place, tensor in zip(self.places, tensors):
            full[place] = tensor
        args, kwargs = tree_unflatten(full, self.structure)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(int(seed))
            out = self.op(*args, **kwargs)
        return tensors, [x for x in flatten(out)[0] if isinstance(x, torch.Tensor)]

    def forward(self, seed, *arrays):
        """Host side: arrays to arrays."""
        with torch.no_grad():
            return [to_numpy(x) for x in self.run(seed, arrays)[1]]

    def backward(self, seed, cotangents, *arrays):
        """Host side: the gradients of the floating-point arrays."""
        float_places = [i for i, a in enumerate(arrays) if is_float(a.dtype)]
        tensors, outs = self.run(seed, arrays, float_places)
        used = [i for i, x in enumerate(outs) if x.requires_grad]
        grads = torch.autograd.grad(
            [outs[i] for i in used],
            [tensors[i] for i in float_places],
            [interop.to_torch(cotangents[i]).to(outs[i].dtype) for i in used],
            allow_unused=True,
            materialize_grads=True,
        )
        return [to_numpy(g) for g in grads]


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
    spec = lambda shape, dtype: jax.ShapeDtypeStruct(tuple(shape), dtype)
    specs = [spec(t.shape, dtypes.to_jax(t.dtype)) for t in outs]
    gradient_shapes = [spec(a.shape, a.dtype) for a in arrays if is_float(a.dtype)]
    seed = jax.random.bits(key, dtype=np.uint32) if key is not None else None

    @jax.custom_vjp
    def primal(seed, arrays):
        return jax.pure_callback(
            off_thread(call.forward), specs, seed, *arrays, vmap_method="sequential"
        )

    def backward(saved, cotangents):
        seed, arrays = saved
        cotangents = [c if is_float(s.dtype) else np.zeros(()) for c, s in zip(cotangents, specs)]
        grads = iter(
            jax.pure_callback(
                off_thread(call.backward), gradient_shapes, seed, cotangents, *arrays,
                vmap_method="sequential",
            )
        )  # fmt: skip
        zero = lambda a: np.zeros(a.shape, jax.dtypes.float0)
        none = None if seed is None else zero(seed)
        return none, [next(grads) if is_float(a.dtype) else zero(a) for a in arrays]

    primal.defvjp(lambda seed, arrays: (primal(seed, arrays), (seed, arrays)), backward)
    results = iter(zip(primal(seed, arrays), outs))
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
