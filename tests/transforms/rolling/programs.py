"""Functions of params as the programs that repeats are looked for in."""

from types import SimpleNamespace

from tojax.transforms.rolling.rolled import traced


def program(function, params, *args):
    """``function(params, *args)`` as a traced call."""
    source = lambda params, state, args, kwargs, rng: (function(params, *args), {})
    return traced(SimpleNamespace(__call__=source).__call__, params, {}, (args, {}, None))
