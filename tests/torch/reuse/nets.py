"""Nets of six blocks, and their programs with and without blocks that are run once."""

import dataclasses

import jax
import numpy as np
import torch
from torch import nn

import tojax
from tests.torch.reuse.equal import difference
from tojax.torch.reuse import blocks

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Block(nn.Module):
    """One of six; ``index`` is never read here."""

    gain = 1.0

    def __init__(self, index=0):
        super().__init__()
        self.linear, self.norm, self.index = nn.Linear(4, 4), nn.LayerNorm(4), index

    def forward(self, x):
        return x + self.norm(self.linear(x)).relu()


class Net(nn.Module):
    """Six blocks, one after the other."""

    def __init__(self, kind=Block, change=None):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(map(kind, range(6)))
        self.start = nn.Parameter(torch.ones(4))
        for i, block in enumerate(self.blocks):
            if change is not None:
                change(block, i)

    def forward(self, x):
        x = x * self.start  # which needs a gradient, as in all blocks
        for i, block in enumerate(self.blocks):
            x = self.step(block, i, x)
        return x

    def step(self, block, i, x):
        return block(x)


def kind(forward, **attributes):
    """A class of blocks with this forward."""
    return type("Kind", (Block,), {"forward": forward, **attributes})


def net(step, kind=Block, change=None):
    """A net that calls its blocks so."""
    return type("Stepped", (Net,), {"step": step})(kind, change)


def setting(**functions):
    """Gives block ``i`` these attributes."""
    return lambda block, i: [setattr(block, k, f(i)) for k, f in functions.items()]


def base(self, x):
    return Block.forward(self, x)


def both(module, *args, rng=None, **kwargs):
    """(What siblings shared, how the program differs from that of a full trace.)"""
    with blocks.watching() as seen:
        shared = program(sharing(module), args, kwargs, rng)
    full = program(tojax.from_torch(module), args, kwargs, rng)
    return seen, difference(shared, full)


def sharing(module):
    """A model whose equal blocks run once in a trace."""
    model = tojax.from_torch(module)
    return dataclasses.replace(model, source=model.source.sharing_blocks())


def program(model, args, kwargs, rng):
    """All arrays that a call gives, those that it writes included."""
    call = lambda params, state, args, kwargs, rng: model.apply(
        params, *args, state=state, rng=rng, mutable=True, **kwargs
    )
    known = {k: v for k, v in kwargs.items() if not hasattr(v, "shape")}
    given = {k: v for k, v in kwargs.items() if k not in known}
    run = lambda params, state, args, given, rng: jax.tree.leaves(
        call(params, state, args, given | known, rng)
    )
    return jax.make_jaxpr(run)(model.params, model.state, args, given, rng)


class Cases(dict):
    """Makers of nets by name, and how many blocks of each run are those of others."""

    def __call__(self, shared):
        """Decorator: this makes a net."""
        return lambda make: self.setdefault(make.__name__, (make, shared)) and make

    def check(self, name):
        """The program is that of a full trace, with so many blocks that were not run."""
        make, shared = self[name]
        seen, wrong = both(make(), X, rng=jax.random.key(0))
        told = [(g.name, g.noted, g.shared, g.reasons) for g in seen]
        assert not wrong, told
        assert (seen[0].shared if seen else 0) == shared, told
