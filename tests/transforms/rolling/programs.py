"""Functions of params as the programs that repeats are looked for in."""

from dataclasses import dataclass, field
from typing import Any

from anyjax.source import SourceCache
from anyjax.transforms.rolling.rolled import trace_call


@dataclass(frozen=True, eq=False)
class Plain:
    """A source that is one function of params."""

    function: Any
    cache: SourceCache = field(default_factory=SourceCache)

    def __call__(self, params, state, args, kwargs, rng=None):
        return self.function(params, *args), {}


def program(function, params, *args):
    """``function(params, *args)`` as a traced call."""
    return trace_call(Plain(function), params, {}, (args, {}, None))
