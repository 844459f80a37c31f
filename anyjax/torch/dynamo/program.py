"""One XLA program: a graph of AOTAutograd, for inputs of certain sizes."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax.errors import ForwardFailed, Unsupported
from anyjax.torch.autograd.jax_program import as_tensors
from anyjax.torch.core.dtypes import TO_JAX, to_jax
from anyjax.torch.core.lifting import array_of, lift
from anyjax.torch.core.precision import Precision
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.dynamo.interpreter import Interpreter, is_random, place_of
from anyjax.torch.dynamo.layout import Layout, Sizes, Symbols, concrete
from anyjax.torch.engine.session import tracing
from anyjax.torch.engine.trace import Trace

Value: TypeAlias = "torch.Tensor | int | float | bool | None"  # an argument, or a result


class Settings(NamedTuple):
    """Options of ``compile_backend``, which says what they mean."""

    precision: Precision
    callback: bool
    max_programs: int
    buckets: bool


class Program:
    """A graph for inputs of the sizes that ``args`` have.

    Weights are arguments of the program; it has 64-bit types, as torch does. Results that are
    inputs, or views of inputs or other results, are torch's.
    """

    def __init__(self, module: torch.fx.GraphModule, args: Sequence[Value], settings: Settings):
        self.module, self.settings = module, settings
        self.is_random = is_random(module)
        self.inputs = module.graph.find_nodes(op="placeholder")
        self.metas = [node.meta["val"] for node in self.inputs]
        self.arguments = [
            Layout(tuple(x.shape), tuple(x.stride())) if isinstance(x, torch.Tensor) else x
            for x in args
        ]
        (self.results,) = module.graph.output_node().args
        self.symbols = Symbols(self.metas)
        self.sizes = self.symbols.sizes(args)
        tensors = {x: x.meta["val"] for x in self.results if is_tensor(x)}
        tensors = {x: y for x, y in tensors.items() if not is_view(x, tensors)}
        self.computed = {node: Layout.of(meta, self.sizes) for node, meta in tensors.items()}
        self.numbers: dict[torch.fx.Node, Value] = {}  # of results, which follow from the sizes
        self.jitted = jax.jit(self._compute)

    def __call__(self, args: Sequence[Value]) -> list[Value]:
        """Returns the results of the graph."""
        tensors = zip(self.computed.items(), self.run(args))
        out = {node: layout.from_memory(x) if layout else x for (node, layout), x in tensors}
        return self.collect(args, out, self.sizes)

    def collect(
        self, args: Sequence[Value], computed: Mapping[torch.fx.Node, torch.Tensor], sizes: Sizes
    ) -> list[Value]:
        """Returns the results of the graph: what is computed, numbers, and views of inputs."""
        values = {**dict(zip(self.inputs, args)), **self.numbers, **computed}
        return [_result(x, values, sizes) for x in self.results]

    def run(
        self, args: Sequence[Value], counts: Sequence[np.ndarray] = ()
    ) -> Sequence[torch.Tensor]:
        """Returns what is computed, with the dimensions in the order of memory."""
        pairs = [(x, y) for x, y in zip(args, self.arguments) if isinstance(y, Layout)]
        arrays = [to_numpy(layout.view(x)) for x, layout in pairs]
        seed = torch.empty((), dtype=torch.int64).random_().numpy() if self.is_random else None
        with jax.enable_x64(True), jax.default_device(_cpu()):
            out, holds = self.jitted(arrays, seed, counts)
            memory = as_tensors(out, [x for x, _ in pairs])
        if holds is not None and not holds:
            raise ForwardFailed(
                "a check of values in a compiled graph fails",
                why="torch's own kernels, or torch._check, raise an error for them",
                do="call the model without torch.compile: torch says what is wrong",
            )
        return memory

    def _compute(
        self, arrays: list[jax.Array], seed: jax.Array | None, counts: Sequence[jax.Array]
    ) -> tuple[list[jax.Array], jax.Array | None]:
        """Returns (the results, in the order of memory, whether all checks of values hold, None
        without any.)
        """
        key = None if seed is None else jax.random.key(seed)
        names = tuple(node.name for node in self.inputs)
        callback, precision = self.settings.callback, self.settings.precision
        traced = tracing(key, names, callback, precision=precision)
        with torch.autocast("cpu", enabled=False), traced as trace:
            out = self.interpreter(trace, counts).run(*self._inputs(arrays))
            values = dict(zip(self.results, out))
            computed = [self.stored(x, values[x]) for x in self.computed]
            holds = jnp.stack(trace.conditions).all() if trace.conditions else None
        self.numbers = {x: y for x, y in values.items() if not is_tensor(x)}
        return computed, holds

    def interpreter(self, trace: Trace, counts: Sequence[jax.Array]) -> Interpreter:
        """Returns what runs the graph."""
        return Interpreter(self.module, trace)

    def stored(self, node: torch.fx.Node, tensor: torch.Tensor) -> jax.Array:
        """Returns a result of the program, in the order of memory."""
        return _stored(node, tensor, self.computed[node])

    def _inputs(self, arrays: list[jax.Array]) -> Iterator[Value]:
        """Yields the arguments as tensors of the trace, and numbers."""
        tensors = iter(arrays)
        for i, (node, argument) in enumerate(zip(self.inputs, self.arguments)):
            if not isinstance(argument, Layout):
                yield argument
                continue
            array = argument.of_view(next(tensors))
            strides = None if argument.is_plain else (argument.strides, 0)
            yield lift(JaxTensor(array, node.meta["val"].dtype, 2 << i, strides))


def is_tensor(result: object) -> TypeGuard[torch.fx.Node]:
    """Returns whether a result of a graph is a tensor."""
    return isinstance(result, torch.fx.Node) and isinstance(result.meta["val"], torch.Tensor)


def is_view(node: torch.fx.Node, results: Container[torch.fx.Node]) -> bool:
    """Returns whether a tensor is an input of the graph, or a view of one or of another result."""
    base = viewed(node)
    return base.op == "placeholder" or (base is not node and base in results)


def viewed(node: torch.fx.Node) -> torch.fx.Node:
    """Returns the tensor that this one is a view of by sizes, itself where it is none."""
    if node.op == "placeholder" or node.kwargs:
        return node
    if node.target is operator.getitem:
        base = viewed(node.args[0])
        return node if base is node.args[0] else base
    if not getattr(node.target, "is_view", False):
        return node
    base, *sizes = node.all_input_nodes
    return viewed(base) if node.args[0] is base and all(map(is_size, sizes)) else node


def sharing(results: Sequence[object]) -> list[torch.fx.Node]:
    """Returns what several results are views of, and which is none of them."""
    counts = Counter(viewed(x) for x in results if is_tensor(x))
    return [x for x, n in counts.items() if n > 1 and x.op != "placeholder" and x not in results]


def is_size(node: torch.fx.Node) -> bool:
    """Returns whether the value of a node follows from sizes."""
    return isinstance(node.meta["val"], (torch.SymInt, torch.SymFloat))


def _result(x: Any, values: Mapping[torch.fx.Node, Value], sizes: Sizes) -> Any:
    """Returns a result of a graph, or an argument of a view."""
    if isinstance(x, (list, tuple)):
        return [_result(y, values, sizes) for y in x]
    if not isinstance(x, torch.fx.Node):
        return x
    if is_size(x):
        size = concrete(x.meta["val"], sizes)
        return values[x] if size is None else size
    return values[x] if x in values else x.target(*_result(x.args, values, sizes))


def _stored(node: torch.fx.Node, tensor: torch.Tensor, layout: Layout | None) -> jax.Array:
    """Returns a result of the program, in the order of memory."""
    array = array_of(tensor).astype(TO_JAX[node.meta["val"].dtype])
    if layout is None:
        return array
    if array.shape != layout.shape:
        raise Unsupported(
            f"{node.target} with a result of shape {list(array.shape)}, which torch's graph has in "
            f"shape {list(layout.shape)}",
            where=place_of(node),
            why="torch's kernels keep it for the backward pass in a form of their own",
            do="leave this part of the model to eager torch: torch.compiler.disable",
        )
    return layout.to_memory(array)


@functools.cache
def _cpu() -> jax.Device:
    return jax.local_devices(backend="cpu")[0]


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Returns a tensor as an array in the same memory, which JAX takes without a copy.

    Raises:
      Unsupported: it is not in the CPU's memory, or JAX has no such dtype.
    """
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise Unsupported(
            f"a {tensor.layout} tensor of {tensor.dtype} on {tensor.device} in a compiled graph",
            why="this backend's programs work in the CPU's memory",
            do="move the model and its inputs: model.cpu(), x.cpu(), x.to_dense()",
        )
    tensor, dtype = tensor.detach().resolve_conj().resolve_neg(), to_jax(tensor.dtype)
    if tensor.is_floating_point() and tensor.itemsize < 4:  # some of which numpy does not know
        return tensor.view(getattr(torch, f"uint{8 * tensor.itemsize}")).numpy().view(dtype)
    return tensor.numpy()
