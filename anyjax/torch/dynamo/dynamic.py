"""One XLA program for all sizes of a bucket.

A graph with dynamic sizes has expressions in torch's symbols. Each symbol becomes a length of the
trace (see sizes/): at most the size of its bucket, and in each call a number.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np
import sympy
import torch

from anyjax.torch.core import private, sizes
from anyjax.torch.core.dtypes import TO_JAX
from anyjax.torch.core.lengths import PREFIX, Length, Lengths, Size, decided
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.tensor import CountedTensor
from anyjax.torch.dynamo.interpreter import Interpreter
from anyjax.torch.dynamo.layout import Layout, Symbols
from anyjax.torch.dynamo.program import Program, Settings, Value
from anyjax.torch.engine.trace import Trace
from anyjax.torch.sizes.counted import Dim, Sizes, Unserved, extent

# Functions in torch's expressions.
FUNCTIONS = {
    **dict.fromkeys(["FloorDiv", "CleanDiv"], operator.floordiv),
    **dict.fromkeys(["PythonMod", "Mod"], operator.mod),
    "Max": lambda *xs: functools.reduce(jax.core.max_dim, xs),
    "Min": lambda *xs: functools.reduce(jax.core.min_dim, xs),
    "ToFloat": lambda x: x,
    **dict.fromkeys(["FloatTrueDiv", "IntTrueDiv"], operator.truediv),
}


class Merged(dict[str, tuple[Dim, ...]]):
    """The factors of dimensions that a forward pass merged, by the name of a result, for the
    backward pass; both have symbols of one ``scope``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scope = jax.export.SymbolicScope()


def bucket(size: int) -> int:
    """Returns the bucket of a size: two in each octave, so that at most a third is padding.

    Example:
      >>> [bucket(n) for n in (1, 3, 5, 8, 9, 17, 33, 1000)]
      [1, 3, 6, 8, 12, 24, 48, 1024]
    """
    step = 1 << max(0, (size - 1).bit_length() - 2)
    return -(-size // step) * step


def buckets_of(numbers: Mapping[Any, int]) -> dict[Any, int]:
    """Returns the buckets of symbols."""
    return {symbol: bucket(numbers[symbol]) for symbol in sorted(numbers, key=str)}


class Expressions:
    """The symbols of a graph as lengths, each within its bucket; some are ``equal`` to others."""

    def __init__(
        self,
        buckets: Mapping[Any, int],
        equal: Mapping[Any, Any],
        scope: jax.export.SymbolicScope,
        counts: Sequence[jax.Array | None] = (),
    ):
        self.lengths = Lengths()
        self.lengths.scope = scope
        self.symbols = {}
        for (symbol, most), count in zip(buckets.items(), counts or [None] * len(buckets)):
            least = next(n for n in range(most, -1, -1) if n < 2 or bucket(n - 1) < most)
            length = Length(count, most, "a compiled graph", least=least)  # type: ignore[arg-type]
            self.symbols[symbol] = self.lengths.new(length, str(symbol))
        self.symbols |= {x: self.symbols[y] for x, y in equal.items()}

    def size(self, number: object) -> Any:
        """Returns a size of the graph, or a number that follows from sizes, in lengths."""
        if isinstance(number, (int, float)):
            return number
        if not isinstance(number, (torch.SymInt, torch.SymFloat)):
            raise Unserved(f"a {type(number).__name__}")
        expr = number.node.expr
        if not expr.free_symbols <= {*self.symbols}:
            raise Unserved(f"the size {expr}")
        values: list[Any] = [self.symbols[x] for x in sorted(expr.free_symbols, key=str)]
        if isinstance(number, torch.SymFloat):
            values = [self.lengths.value(x).astype(float) for x in values]
        try:
            function = sympy.lambdify(sorted(expr.free_symbols, key=str), expr, [FUNCTIONS, "math"])
            return function(*values)
        except (NameError, TypeError):
            raise Unserved(f"the size {expr}") from None

    def dims(self, meta: torch.Tensor) -> tuple[Dim, ...]:
        """Returns the dimensions of a tensor of the graph, each of one factor."""
        return tuple((self.size(n),) for n in meta.shape)


class DynamicInterpreter(Interpreter):
    """Runs a graph on tensors of which as many elements count as a call has."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        trace: Trace,
        expressions: Expressions,
        dims: Mapping[str, tuple[Dim, ...]],
    ):
        super().__init__(module, trace)
        self.expressions, self.dims = expressions, dims

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs one operator; what is computed of sizes follows from its expression."""
        meta = n.meta.get("val")
        if isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            if n.op == "placeholder":
                next(self.args_iter)
            size = self.expressions.size(meta)
            is_float = isinstance(size, jax.Array)
            return torch.SymFloat(sizes.Node(size)) if is_float else sizes.to_torch((size,))[0]
        out = super().run_node(n)
        if n.op != "placeholder" or n.name not in self.dims:
            return out
        size, dims = self.expressions.size, self.dims[n.name]
        layout = sizes.to_torch([*map(size, meta.stride())]), 0
        return lift(CountedTensor(inner(out), dims, layout))


class DynamicProgram(Program):
    """A graph for all sizes of a bucket.

    Inputs are padded with zeros, what counts of the results is cut out. How many elements count is
    an argument, so that an operator that looks at more than one element leaves the others out.
    """

    differentiates = False

    def __init__(
        self,
        module: torch.fx.GraphModule,
        args: Sequence[Value],
        settings: Settings,
        buckets: dict[Any, int],
        equal: dict[Any, Any],
        merged: Merged,
    ):
        self.buckets, self.equal, self.merged = buckets, equal, merged
        self.expressions = Expressions(buckets, equal, merged.scope)
        self.padding = Sizes(self.expressions.lengths)
        inputs = module.graph.find_nodes(op="placeholder")
        self.dynamic = {x.name: self._dims(x.name, x.meta["val"]) for x in inputs}
        counts = Symbols([x.meta["val"] for x in inputs]).sizes(args)
        super().__init__(module, self._padded(args, counts), settings)
        self.cuts: dict[torch.fx.Node, Cut] = {}

    def __call__(self, args: Sequence[Value]) -> list[Value]:
        """Returns the results of the graph."""
        counts, out = self.symbols.sizes(args), {}
        arrays = [np.asarray(counts[symbol], np.int64) for symbol in self.buckets]
        memory = self.run(self._padded(args, counts), arrays)
        for (node, layout), tensor in zip(self.computed.items(), memory):
            if node in self.cuts:
                out[node] = self.cuts[node].cut(tensor, self.padding, counts)
            else:
                out[node] = layout.from_memory(tensor) if layout else tensor
        return self.collect(args, out, counts)

    def _dims(self, name: str, meta: object) -> tuple[Dim, ...] | Size | None:
        """Returns the dimensions of an input, in the factors that the forward pass merged where it
        is a result of that; the expression of a number; None where no size of the call is in it.
        """
        if isinstance(meta, torch.SymInt):
            return self.expressions.size(meta)
        if not _is_dynamic(meta):
            return None
        dims, factors = self.expressions.dims(meta), self.merged.get(name)
        return factors if factors and [*map(extent, factors)] == [*map(extent, dims)] else dims

    def _padded(self, args: Sequence[Value], counts: Mapping[Any, int]) -> list[Value]:
        """Returns arguments in the sizes of their buckets."""
        pairs = zip(args, self.dynamic.values())
        return [x if dims is None else _pad(x, dims, self.padding, counts) for x, dims in pairs]

    def interpreter(self, trace: Trace, counts: Sequence[jax.Array]) -> Interpreter:
        """Returns what runs the graph for the sizes of the buckets."""
        expressions = Expressions(self.buckets, self.equal, self.merged.scope, counts)
        trace.lengths, trace.differentiates = expressions.lengths, False
        dims = {name: x for name, x in self.dynamic.items() if isinstance(x, tuple)}
        return DynamicInterpreter(self.module, trace, expressions, dims)

    def stored(self, node: torch.fx.Node, tensor: torch.Tensor) -> jax.Array:
        """Returns a result of the program; all elements of one of which some count, contiguous."""
        meta, x = node.meta["val"], inner(tensor)
        if not _is_dynamic(meta):
            return super().stored(node, tensor)
        is_counted = isinstance(x, CountedTensor)
        dims = x.dims if is_counted else tuple((n,) for n in array_of(x).shape)
        if any(len(dim) > 1 for dim in dims):
            self.merged[node.name] = dims
        size = self.expressions.size
        self.cuts[node] = Cut(dims, (*map(size, meta.shape),), (*map(size, meta.stride()),))
        return array_of(x.rows if is_counted else x).astype(TO_JAX[meta.dtype])


class Cut(NamedTuple):
    """The elements of a result that count, and how they lie in memory."""

    dims: tuple[Dim, ...]
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]

    def cut(self, tensor: torch.Tensor, padding: Sizes, counts: Mapping[Any, int]) -> torch.Tensor:
        """Returns what counts, in torch's strides."""
        factors = [factor for dim in self.dims for factor in dim]
        tensor = tensor.reshape([*map(padding.padded, factors)])
        tensor = tensor[tuple(slice(_number(factor, counts)) for factor in factors)]
        shape, strides = ([_number(n, counts) for n in x] for x in (self.shape, self.strides))
        layout = Layout(tuple(shape), tuple(strides))
        stored = tensor.reshape(shape)[tuple(map(slice, layout.stored))]
        return layout.from_memory(stored.permute(layout.order).contiguous())


def _is_dynamic(meta: object) -> TypeGuard[torch.Tensor]:
    """Returns whether sizes or strides depend on the sizes of the call."""
    if not isinstance(meta, torch.Tensor):
        return False
    return any(isinstance(n, torch.SymInt) for n in (*meta.shape, *meta.stride()))


def _number(size: Size, counts: Mapping[Any, int]) -> int:
    """Returns a size of a call."""
    if not decided(size):
        return size
    return int(private.evaluated(size, {f"{PREFIX}{x}": n for x, n in counts.items()}))


def _pad(
    value: Any, dims: tuple[Dim, ...] | Size, padding: Sizes, counts: Mapping[Any, int]
) -> Value:
    """Returns an argument in the size of its bucket, contiguous."""
    if not isinstance(value, torch.Tensor):
        return padding.padded(dims)
    factors = [factor for dim in dims for factor in dim]
    shape = tuple(map(padding.padded, factors))
    value = value.detach().reshape([_number(factor, counts) for factor in factors])
    if tuple(value.shape) == shape:
        return value.reshape(padding.shape(dims)).contiguous()
    padded = value.new_zeros(shape)
    padded[tuple(map(slice, value.shape))] = value
    return padded.reshape(padding.shape(dims))
