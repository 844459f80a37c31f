"""Kinds of faults: changes of a value at three places of a module, and of what a module is.

A change of a value takes the first tensor of floats that a module returns, or is called with, and
returns another one, or None where it does not fit. A change of a module plants itself and returns
True, or False where there is nothing to change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.utils import _pytree as pytree

Change = Callable[[torch.Tensor], "torch.Tensor | None"]


def _element(value) -> Change:
    """Returns a change of one number, the largest of all."""

    def change(x):
        place = torch.arange(x.numel()).reshape(x.shape) == x.detach().abs().flatten().argmax()
        return torch.where(place, value(x), x)

    return change


def _along(dim: int, change: Change) -> Change:
    """Returns a change that needs two entries along a dimension of at least two."""
    return lambda x: change(x) if x.ndim > 1 and x.shape[dim] > 1 else None


def _taken(dim: int, order) -> Change:
    take = lambda x: x.index_select(dim, torch.tensor(order(x.shape[dim])))
    return _along(dim, take)


swapped = lambda n: [1, 0, *range(2, n)]
last_two = lambda n: [*range(n - 2), n - 1, n - 2]
VALUES: dict[str, Change] = {
    "a thousandth larger": lambda x: x * 1.001,
    "a ten-thousandth larger": lambda x: x * 1.0001,
    "a constant added": lambda x: x + 1e-3,
    "negated": lambda x: -x,
    "absolute": lambda x: x.abs(),
    "no negative ones": lambda x: x.clamp(min=0),
    "cut at a half of the largest": lambda x: x.clamp(max=0.5 * x.detach().max().clamp(max=1e9)),
    "zeros": lambda x: x * 0,
    "squashed": lambda x: x.tanh(),
    "no mean": lambda x: x - x.mean(-1, keepdim=True),
    "another unit": lambda x: x / x.detach().clamp(-1e9, 1e9).norm(),
    "one number larger": _element(lambda x: x * 1.01),
    "one number zero": _element(lambda x: x * 0),
    "one number infinite": _element(lambda x: x + torch.inf),
    "one number no number": _element(lambda x: x * torch.nan),
    "all no numbers": lambda x: x * torch.nan,
    "rounded to bfloat16": lambda x: x.bfloat16().to(x.dtype),
    "rounded to a thousandth": lambda x: (x * 1024).round() / 1024,
    "rows flipped": _along(0, lambda x: x.flip(0)),
    "positions flipped": _along(1, lambda x: x.flip(1)),
    "features flipped": _along(-1, lambda x: x.flip(-1)),
    "rows rolled": _along(0, lambda x: x.roll(1, 0)),
    "positions rolled": _along(1, lambda x: x.roll(1, 1)),
    "features rolled": _along(-1, lambda x: x.roll(-1, -1)),
    "two rows swapped": _taken(0, swapped),
    "two positions swapped": _taken(1, swapped),
    "the last features swapped": _taken(-1, last_two),
    "halves swapped": _along(-1, lambda x: torch.cat(x.tensor_split(2, -1)[::-1], -1)),
    "transposed in place": lambda x: x.mT.reshape(x.shape) if x.ndim > 1 else None,
    "the first row for all": _along(0, lambda x: x[:1].expand_as(x)),
    "the mean of rows": _along(0, lambda x: x.mean(0, keepdim=True).expand_as(x)),
    "sorted": _along(-1, lambda x: x.sort(-1).values),
    "summed up": _along(-1, lambda x: x.cumsum(-1)),
    "the last row zero": _along(0, lambda x: torch.cat([x[:-1], x[-1:] * 0])),
    "an axis more": lambda x: x[None],
    "a row less": _along(0, lambda x: x[:-1]),
    "a feature less": _along(-1, lambda x: x[..., :-1]),
    "a row twice": lambda x: torch.cat([x, x[:1]]) if x.ndim else None,
    "flat": lambda x: x.flatten() if x.ndim > 1 else None,
    "in bfloat16": lambda x: x.bfloat16() if x.dtype != torch.bfloat16 else x.float(),
}  # fmt: skip


def _changed(change: Change, tree):
    """Returns a tree with its first floats changed; unchanged where the change does not fit."""
    leaves, structure = pytree.tree_flatten(tree)
    for i, x in enumerate(leaves):
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            y = change(x)
            leaves[i] = x if y is None else y
            break
    return pytree.tree_unflatten(leaves, structure)


def at_output(change: Change, module: nn.Module) -> bool:
    """Changes what a module returns."""
    kind = type(module)

    class Faulty(kind):
        def forward(self, *args, **kwargs):
            return _changed(change, kind.forward(self, *args, **kwargs))

    module.__class__ = Faulty
    return True


def at_input(change: Change, module: nn.Module) -> bool:
    """Changes what a module is called with."""
    hook = lambda _, args, kwargs: _changed(change, (args, kwargs))
    module.register_forward_pre_hook(hook, with_kwargs=True)
    return True


def inner(module: nn.Module, place: float) -> nn.Module:
    """Returns a module without submodules that has parameters, some way down the list."""
    leaves = [x for x in module.modules() if not [*x.children()] and [*x.parameters()]]
    return leaves[int(place * (len(leaves) - 1))]


def _each(kinds: tuple[type, ...] | type | str, change: Callable[[nn.Module], object]):
    """Returns a change of the last of the modules that are of a kind, or have an attribute."""

    def plant(module):
        fits = lambda x: hasattr(x, kinds) if isinstance(kinds, str) else isinstance(x, kinds)
        chosen = [x for x in module.modules() if fits(x)]
        return bool(chosen) and change(chosen[-1]) is not False

    return plant


def _set(name, value):
    return _each(name, lambda x: setattr(x, name, value(getattr(x, name))))


def _parameter(pattern, change, ndim=None):
    """Returns a change of the last parameter with a name."""

    def plant(module):
        fits = lambda k, x: re.search(pattern, k) and (ndim is None or x.ndim == ndim)
        chosen = [x for k, x in module.named_parameters() if fits(k, x)]
        if not chosen or (values := change(chosen[-1].detach())) is None:
            return False
        chosen[-1].data = values.clone()
        return True

    return plant


def _buffer(pattern, change):
    def plant(module):
        chosen = [x for k, x in module.named_buffers() if re.search(pattern, k)]
        for x in chosen[-1:]:
            x.copy_(change(x))
        return bool(chosen)

    return plant


def _instead(kinds, build):
    """Returns a change that puts another module in the place of the last one of a kind."""

    def plant(module):
        pairs = [(outer, k, x) for outer in module.modules() for k, x in outer.named_children()
                 if isinstance(x, kinds)]  # fmt: skip
        for outer, name, x in pairs[-1:]:
            setattr(outer, name, build(x))
        return bool(pairs)

    return plant


def _of_outputs(fits, change):
    """Returns a change of all outputs of a kind, such as integers."""

    def plant(module):
        kind = type(module)

        class Faulty(kind):
            def forward(self, *args, **kwargs):
                out = kind.forward(self, *args, **kwargs)
                is_it = lambda x: isinstance(x, torch.Tensor) and fits(x)
                return pytree.tree_map(lambda x: change(x) if is_it(x) else x, out)

        module.__class__ = Faulty
        return True

    return plant


whole = lambda x: x.dtype == torch.long
truths = lambda x: x.dtype == torch.bool
complexes = lambda x: x.is_complex()
tiny = lambda x: x.is_floating_point() and x.detach().abs().max() < 1e-2
large = lambda x: x.is_floating_point() and x.detach().abs().max() > 1e8
above = lambda x, factor: torch.where(x < -1e30, x, x * factor)
square = lambda x: x.T if x.shape[0] == x.shape[1] else None
ACTIVATIONS = nn.ReLU, nn.GELU, nn.SiLU
BATCHES = nn.BatchNorm1d, nn.BatchNorm2d
STRUCTURE: dict[str, Callable[[nn.Module], bool]] = {
    "eps": _set("eps", lambda x: x * 50 + 1e-4),
    "variance_epsilon": _set("variance_epsilon", lambda x: x * 50 + 1e-4),
    "momentum": _each(BATCHES, lambda x: setattr(x, "momentum", 0.3)),
    "the other mode of BatchNorm": _each(BATCHES, lambda x: x.train(not x.training) and None),
    "Dropout that drops": _each(nn.Dropout, lambda x: x.train() and None),
    "the rate of Dropout": _set("p", lambda x: 0.7),
    "gelu by tanh": _instead((nn.GELU, ), lambda x: nn.GELU("tanh")),
    "another activation": _instead(ACTIVATIONS, lambda x: nn.Tanh()),
    "an activation in place": _instead(nn.ReLU, lambda x: nn.ReLU(inplace=True)),
    "no activation": _instead(ACTIVATIONS, lambda x: nn.Identity()),
    "a leaky activation": _instead(nn.ReLU, lambda x: nn.LeakyReLU(1e-3)),
    "an activation of a config": _set("act_fn", lambda x: nn.GELU("tanh")),
    "the base of angles": _set("base", lambda x: x * 1.01),
    "frequencies": _buffer("inv_freq", lambda x: x**0.99),
    "the scale of scores": _set("scaling", lambda x: x * 1.001),
    "a scale": _set("scale", lambda x: x * 1.001),
    "the rate of an average": _set("rate", lambda x: x * 1.1),
    "a weight transposed": _parameter("weight", square, 2),
    "a weight larger": _parameter("weight", lambda x: x * 1.001),
    "a number of a weight": _parameter("weight", lambda x: _element(lambda y: y * 1.02)(x)),
    "rows of a weight swapped": _parameter("weight", lambda x: x[swapped(len(x))], 2),
    "columns of a weight rolled": _parameter("weight", lambda x: x.roll(1, -1), 2),
    "a weight in bfloat16": _parameter("weight", lambda x: x.bfloat16().float(), 2),
    "a weight in 8 bits": _parameter(
        "weight", lambda x: (x * 127 / x.abs().max()).round() * x.abs().max() / 127, 2),
    "no bias": _parameter("bias", lambda x: x * 0),
    "a bias of another order": _parameter("bias", lambda x: x.flip(0)),
    "a norm's weight": _parameter("norm.*weight|ln.*weight", lambda x: x * 0.999, 1),
    "the first embeddings swapped": _parameter(
        "embed|wte|tokens|shared", lambda x: x.roll(1, 0), 2),
    "a mean that runs": _buffer("running_mean", lambda x: x + 1e-3),
    "a variance that runs": _buffer("running_var", lambda x: x * 1.01),
    "an average at its start": _buffer("average", lambda x: x + 1e-2),
    "a count at its start": _buffer("count", lambda x: x + 1),
    "integers by one": _of_outputs(whole, lambda x: x + 1),
    "integers as bools": _of_outputs(whole, lambda x: x > 0),
    "integers of other rows": _of_outputs(whole, lambda x: x.flip(0)),
    "integers as floats": _of_outputs(whole, lambda x: x.float()),
    "bools inverted": _of_outputs(truths, lambda x: ~x),
    "bools as integers": _of_outputs(truths, lambda x: x.long()),
    "one bool inverted": _of_outputs(
        truths, lambda x: x ^ (torch.arange(x.numel()).reshape(x.shape) == 3)),
    "complex ones conjugated": _of_outputs(complexes, lambda x: x.conj().resolve_conj()),
    "complex ones turned": _of_outputs(complexes, lambda x: x * 1j),
    "the real part alone": _of_outputs(complexes, lambda x: x.real),
    "small outputs larger": _of_outputs(tiny, lambda x: x * 1.01),
    "large outputs larger": _of_outputs(large, lambda x: x * 1.0001),
    "scores that are not hidden": _of_outputs(
        lambda x: x.is_floating_point() and bool((x < -1e30).any()), lambda x: above(x, 1.001)),
    "hidden scores infinite": _of_outputs(
        lambda x: x.is_floating_point(), lambda x: torch.where(x < -1e30, -torch.inf, x)),
    "bfloat16 as float32": _of_outputs(lambda x: x.dtype == torch.bfloat16, lambda x: x.float()),
}  # fmt: skip
PLACES: dict[str, Callable[[Change, nn.Module], bool]] = {
    "output": at_output,
    "inner output": lambda change, module: at_output(change, inner(module, 0.5)),
    "inner input": lambda change, module: at_input(change, inner(module, 0.8)),
}
KINDS: dict[str, Callable[[nn.Module], bool]] = {
    **{f"{place}: {name}": partial(plant, change)
       for place, plant in PLACES.items() for name, change in VALUES.items()},
    **STRUCTURE,
}  # fmt: skip
