"""One XLA program for all sizes of a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from anyjax.torch.core.dtypes import TO_JAX
from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.dynamo.buckets.bucketed import (
    Bucketed,
    Dim,
    Expr,
    Sizes,
    Unbucketed,
    bucket,
    extent,
)
from anyjax.torch.dynamo.buckets.call import bucketed
from anyjax.torch.dynamo.buckets.interpreter import BucketInterpreter
from anyjax.torch.dynamo.interpreter import Interpreter
from anyjax.torch.dynamo.layout import Layout, Symbols
from anyjax.torch.dynamo.program import Program, Settings, Value
from anyjax.torch.engine.trace import Trace


def buckets_of(sizes: Mapping[Any, int]) -> dict[Any, int]:
    """Returns the buckets of symbols."""
    return {symbol: bucket(sizes[symbol]) for symbol in sorted(sizes, key=str)}


class BucketProgram(Program):
    """A graph for all sizes of a bucket.

    Inputs are padded with zeros, what counts of the results is cut out. How many elements count is
    an argument, so that an operator that looks at more than one element leaves the others out.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        args: Sequence[Value],
        settings: Settings,
        buckets: dict[Any, int],
        equal: Mapping[Any, Any],
        factors: dict[str, tuple[Dim, ...]],
    ):
        self.buckets, self.equal, self.factors = buckets, equal, factors
        self.padding = Sizes(buckets, equal=equal)
        inputs = module.graph.find_nodes(op="placeholder")
        self.dynamic = {x.name: self._dims(x.name, x.meta["val"]) for x in inputs}
        counts = Symbols([x.meta["val"] for x in inputs]).sizes(args)
        super().__init__(module, self._padded(args, Sizes(counts, equal=equal)), settings)
        self.cuts: dict[torch.fx.Node, Cut] = {}
        self.calls: dict[tuple[int, ...], Sizes] = {}
        self.checked: set[Sizes] = set()

    def __call__(self, args: Sequence[Value]) -> list[Value]:
        """Returns the results of the graph."""
        counts = self.symbols.sizes(args)
        arrays = [np.asarray(counts[symbol], np.int64) for symbol in self.buckets]
        sizes, out = self._sizes(counts), {}
        memory = self.run(self._padded(args, sizes), arrays)
        self._check(sizes)
        for (node, layout), tensor in zip(self.computed.items(), memory):
            if node in self.cuts:
                out[node] = self.cuts[node].cut(tensor, self.padding, sizes)
            else:
                out[node] = layout.from_memory(tensor) if layout else tensor
        return self.collect(args, out, counts)

    def _sizes(self, counts: Mapping[Any, int]) -> Sizes:
        """Returns the sizes of a call, the same object for equal ones."""
        key = tuple(counts.values())
        return self.calls.setdefault(key, Sizes(counts, equal=self.equal))

    def _check(self, sizes: Sizes) -> None:
        """Checks that no size is larger than it is for the bucket, once for each call's sizes.

        Raises:
          Unbucketed: one is: it falls where others grow.
        """
        if sizes not in self.checked:
            for expr, padded in {**self.padding.numbers, **self.traced.numbers}.items():
                if sizes.padded(expr) > padded:
                    raise Unbucketed(f"the size {expr}")
            self.checked.add(sizes)

    def _dims(self, name: str, meta: object) -> tuple[Dim, ...] | Expr | None:
        """Returns the dimensions of an input, in the factors that the forward pass merged where it
        is a result of that; the expression of a number; None where no size of the call is in it.
        """
        dims = _dims(self.padding, meta)
        merged = self.factors.get(name)
        if isinstance(dims, tuple) and merged and [*map(extent, merged)] == [*map(extent, dims)]:
            return merged
        return dims

    def _padded(self, args: Sequence[Value], sizes: Sizes) -> list[Value]:
        """Returns arguments in the sizes of their buckets."""
        return [
            x if dims is None else _pad(x, dims, self.padding, sizes)
            for x, dims in zip(args, self.dynamic.values())
        ]

    def interpreter(self, trace: Trace, counts: Sequence[jax.Array]) -> Interpreter:
        """Returns what runs the graph for the sizes of the buckets."""
        tensors = [lift(JaxTensor(count, torch.int64)) for count in counts]
        self.traced = Sizes(self.buckets, dict(zip(self.buckets, tensors)), self.equal)
        dims = {name: x for name, x in self.dynamic.items() if isinstance(x, tuple)}
        return BucketInterpreter(self.module, trace, self.traced, dims)

    def stored(self, node: torch.fx.Node, tensor: Bucketed | torch.Tensor) -> jax.Array:
        """Returns a result of the program; all of a bucketed one, contiguous."""
        meta = node.meta["val"]
        if _dims(self.padding, meta) is None:
            return super().stored(node, tensor)
        x, expression = bucketed(tensor), self.padding.expression
        if any(len(dim) > 1 for dim in x.dims):
            self.factors[node.name] = x.dims
        self.cuts[node] = Cut(
            x.dims, (*map(expression, meta.shape),), (*map(expression, meta.stride()),)
        )
        return array_of(x.tensor).astype(TO_JAX[meta.dtype])


class Cut(NamedTuple):
    """The elements of a result that count, and how they lie in memory."""

    dims: tuple[Dim, ...]
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    def cut(self, tensor: torch.Tensor, padding: Sizes, sizes: Sizes) -> torch.Tensor:
        """Returns what counts, in torch's strides."""
        factors = [factor for dim in self.dims for factor in dim]
        tensor = tensor.reshape([*map(padding.padded, factors)])
        tensor = tensor[tuple(slice(sizes.padded(factor)) for factor in factors)]
        shape = tuple(map(sizes.padded, self.shape))
        layout = Layout(shape, tuple(map(sizes.padded, self.strides)))
        stored = tensor.reshape(shape)[tuple(map(slice, layout.stored))]
        return layout.from_memory(stored.permute(layout.order).contiguous())


def _dims(sizes: Sizes, meta: object) -> tuple[Dim, ...] | Expr | None:
    """Returns the dimensions of a tensor of a graph, or the expression of a number, where they, or
    strides, depend on the sizes of the call; else None.
    """
    if isinstance(meta, torch.Tensor):
        is_dynamic = any(isinstance(n, torch.SymInt) for n in (*meta.shape, *meta.stride()))
        return sizes.dims(meta) if is_dynamic else None
    return sizes.expression(meta) if isinstance(meta, torch.SymInt) else None


def _pad(value: Any, dims: Any, padding: Sizes, sizes: Sizes) -> Value:
    """Returns an argument in the size of its bucket, contiguous."""
    if not isinstance(value, torch.Tensor):
        return padding.padded(dims)
    factors = [factor for dim in dims for factor in dim]
    shape = tuple(map(padding.padded, factors))
    value = value.detach().reshape([*map(sizes.padded, factors)])
    if tuple(value.shape) == shape:
        return value.reshape(padding.shape(dims)).contiguous()
    if any(size < n for size, n in zip(shape, value.shape)):
        raise Unbucketed(f"a size of {value.shape}, which falls where others grow")
    padded = value.new_zeros(shape)
    padded[tuple(map(slice, value.shape))] = value
    return padded.reshape(padding.shape(dims))
