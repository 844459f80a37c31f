"""Rates of dropout that a module's Python code only has in training mode.

``dropout_p=self.rate if self.training else 0.0`` is 0 in a program that torch.export makes.
"""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch.overrides import TorchFunctionMode

from tojax import warn_once
from tojax.flax.codegen.graph.functionalize import packet

ATTENTION, DROPOUT = "aten.scaled_dot_product_attention", "aten.dropout"
PLACES = {ATTENTION: (4, "dropout_p"), DROPOUT: (1, "p")}
FUNCTIONS = {  # where each has its rate, and whether it is training
    F.scaled_dot_product_attention: (ATTENTION, 4, "dropout_p", 99, ""),
    F.multi_head_attention_forward: (ATTENTION, 10, "dropout_p", 13, "training"),
    F.dropout: (DROPOUT, 1, "p", 2, "training"),
}


def rate_of(node: fx.Node) -> float:
    """Of the dropout that an operator does itself, 0 without one."""
    index, name = PLACES.get(packet(node), (0, ""))
    if not name:
        return 0.0
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, 0.0)


def calls_of(node: fx.Node) -> list[str]:
    """The calls that a node stands in, outermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    found = [path for path, _ in stack.values() if path and not path.startswith("_empty")]
    return list(dict.fromkeys(found))


def trained(nodes: list[fx.Node], module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """Gives those of these operators that drop nothing out the rate that they have in training."""
    ours = [n for n in nodes if packet(n) in PLACES]
    try:
        found = _noted(module, args, kwargs)
    except Exception as error:  # it wants more than this example: labels, larger batches
        if not all(map(rate_of, ours)):
            said = f"{type(error).__name__}: {error}"
            left_out(f"the module refuses this example there: {said}")
        return
    by_place: dict[Any, list[fx.Node]] = defaultdict(list)
    for node in ours:
        by_place[["", *calls_of(node)][-1].partition("@")[0], packet(node)].append(node)
    whole = torch.nn.MultiheadAttention  # a layer of the file, or else looked at in its own place
    lost = {x for x, rates in found.items() if any(rates) and x not in by_place}
    lost = {x for x in lost if type(module.get_submodule(x[0])) is not whole}
    if lost:
        names = ", ".join(sorted({f"in {x[0] or 'the whole'}" for x in lost}))
        left_out(f"{names} evaluation mode has no operator for it")
    for (path, kind), these in by_place.items():
        rates = found[path, kind]
        if len(rates) != len(these):  # in training it may leave out whole layers
            cls = type(module.get_submodule(path))
            like = [x for x in found if x[1] == kind and type(module.get_submodule(x[0])) is cls]
            every = {rate for x in like for rate in found[x]}
            rates = [*every] * len(these) if len(every) == 1 else []
        for node, rate in zip(these, rates):
            if rate and not rate_of(node):
                index, name = PLACES[kind]
                put = index < len(node.args)
                node.update_arg(index, rate) if put else node.update_kwarg(name, rate)


def _noted(module: torch.nn.Module, args: Any, kwargs: Any) -> dict[tuple[str, str], list[float]]:
    """The rates of one call in training mode by module and operator, in order."""
    noting = _Noting()
    handles = []
    for name, part in module.named_modules():
        enter = lambda *_, name=name: noting.path.append(name)
        leave = lambda *_: noting.path.pop() and None
        handles.append(part.register_forward_pre_hook(enter))
        handles.append(part.register_forward_hook(leave, always_call=True))
    try:
        with unchanged(module), torch.no_grad(), torch.random.fork_rng(), noting:
            module.train()(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    finally:
        for handle in handles:
            handle.remove()
        module.eval()
    return noting.found


def left_out(why: str) -> None:
    """Says that the file has less dropout than the module."""
    warn_once.warn(f"dropout that only training mode has is left out: {why}", UserWarning)


class _Noting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.path: list[str] = []
        self.found: dict[tuple[str, str], list[float]] = defaultdict(list)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FUNCTIONS and self.path:
            kind, place, name, flag, training = FUNCTIONS[func]
            rate = args[place] if place < len(args) else kwargs.get(name, 0.0)
            on = args[flag] if flag < len(args) else kwargs.get(training, True)
            self.found[self.path[-1], kind].append(float(rate) * bool(on))
        return func(*args, **kwargs)


@contextlib.contextmanager
def unchanged(module: torch.nn.Module) -> Iterator[None]:
    """After this, the module holds what it held before: no caches of a call, the same buffers."""
    kept = [vars(part) for part in module.modules()]
    inside = [x for held in kept for x in held.values() if isinstance(x, (dict, list))]
    before = [(x, x.copy()) for x in (*kept, *inside)]
    buffers = [(x, x.clone()) for x in module.buffers()]
    try:
        yield
    finally:
        for held, values in before:
            held.clear()
            held.extend(values) if isinstance(held, list) else held.update(values)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
