"""Rates of dropout that a module's Python code only has in training mode.

``dropout_p=self.rate if self.training else 0.0`` is 0 in a program that torch.export makes.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch.overrides import TorchFunctionMode

from anyjax import warn_once
from anyjax.compare.recorders.torch_calls import unmodified, watched
from anyjax.flax.codegen.graph.functionalize import packet

ATTENTION, DROPOUT = "aten.scaled_dot_product_attention", "aten.dropout"
PLACES = {ATTENTION: (4, "dropout_p"), DROPOUT: (1, "p")}
FUNCTIONS = {  # where each has its rate, and whether it is training
    F.scaled_dot_product_attention: (ATTENTION, 4, "dropout_p", 99, ""),
    F.multi_head_attention_forward: (ATTENTION, 10, "dropout_p", 13, "training"),
    F.dropout: (DROPOUT, 1, "p", 2, "training"),
}


def rate_of(node: fx.Node) -> float:
    """Returns the rate of the dropout that an operator does itself, 0 without one."""
    index, name = PLACES.get(packet(node), (0, ""))
    if not name:
        return 0.0
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, 0.0)


def calls_of(node: fx.Node) -> list[str]:
    """Returns the submodule calls around a node, outermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path and not path.startswith("_empty")]
    return list(dict.fromkeys(paths))


def restore_rates(nodes: list[fx.Node], module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
    """Gives dropout and attention without a rate in evaluation mode that of training mode."""
    dropouts = [n for n in nodes if packet(n) in PLACES]
    try:
        rates_by_place = _training_rates(module, args, kwargs)
    except Exception as error:  # it wants more than this example: labels, larger batches
        if not all(map(rate_of, dropouts)):
            message = f"{type(error).__name__}: {error}"
            warn_left_out(f"the module refuses this example there: {message}")
        return
    nodes_by_place: dict[Any, list[fx.Node]] = defaultdict(list)
    for node in dropouts:
        nodes_by_place[["", *calls_of(node)][-1].partition("@")[0], packet(node)].append(node)
    kind_at = lambda place: type(module.get_submodule(place[0]))
    lost = {x for x, rates in rates_by_place.items() if any(rates) and x not in nodes_by_place}
    lost = {x for x in lost if kind_at(x) is not torch.nn.MultiheadAttention}  # which has its own
    if lost:
        names = ", ".join(sorted({f"in {x[0] or 'the whole'}" for x in lost}))
        warn_left_out(f"{names} evaluation mode has no operator for it")
    for (path, kind), nodes_there in nodes_by_place.items():
        rates = rates_by_place[path, kind]
        if len(rates) != len(nodes_there):  # in training it may leave out whole layers
            cls = kind_at((path, kind))
            similar = [x for x in rates_by_place if x[1] == kind and kind_at(x) is cls]
            distinct = {rate for x in similar for rate in rates_by_place[x]}
            rates = [*distinct] * len(nodes_there) if len(distinct) == 1 else []
        for node, rate in zip(nodes_there, rates):
            if rate and not rate_of(node):
                index, name = PLACES[kind]
                is_positional = index < len(node.args)
                node.update_arg(index, rate) if is_positional else node.update_kwarg(name, rate)


def _training_rates(
    module: torch.nn.Module, args: tuple, kwargs: dict
) -> dict[tuple[str, str], list[float]]:
    """Returns the rates of one call in training mode by module and operator, in order."""
    recorder = _RateRecorder()
    enter, leave = lambda name, *_: recorder.path.append(name), lambda *_: recorder.path.pop()
    try:
        with (
            watched(module.named_modules(), enter, leave),
            unmodified(module),
            torch.no_grad(),
            torch.random.fork_rng(),
            recorder,
        ):
            module.train()(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    finally:
        module.eval()
    return recorder.rates_by_place


def warn_left_out(why: str) -> None:
    """Warns that the file has less dropout than the module."""
    warn_once.warn(f"dropout that only training mode has is left out: {why}", UserWarning)


class _RateRecorder(TorchFunctionMode):
    """A mode that records the rates of dropout by module and operator."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[str] = []
        self.rates_by_place: dict[tuple[str, str], list[float]] = defaultdict(list)

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in FUNCTIONS and self.path:
            kind, place, name, flag, training = FUNCTIONS[func]
            rate = args[place] if place < len(args) else kwargs.get(name, 0.0)
            on = args[flag] if flag < len(args) else kwargs.get(training, True)
            self.rates_by_place[self.path[-1], kind].append(float(rate) * bool(on))
        return func(*args, **kwargs)
