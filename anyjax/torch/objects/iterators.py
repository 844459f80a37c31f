"""Iterators of Python's own: a trace goes on with copies of them.

Those of itertools have no copies from Python 3.14 on, which 3.12 and 3.13 warn of.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

OWN = {"builtins", "itertools"}


def is_iterator(value: object) -> TypeGuard[Iterator]:
    """Returns whether it is one that can be copied: of lists, dicts, zip, itertools.count, ...

    Example:
      >>> is_iterator(iter([])), is_iterator(x for x in []), is_iterator([])
      (True, False, False)
    """
    kind = type(value)
    return kind.__module__ in OWN and hasattr(kind, "__next__") and "__reduce__" in vars(kind)


def copied(iterator: Iterator) -> Any:
    """Returns one that goes on from the same place; what it goes over is the same.

    Example:
      >>> import itertools
      >>> first = itertools.cycle("ab")
      >>> next(first), next(copied(first)), next(first)
      ('a', 'b', 'b')
    """
    make, arguments, *state = _parts(iterator)
    new = make(*_mapped(copied, arguments))
    if state:  # a cycle writes to its list
        with _no_warnings():
            state = _mapped(copied, state[0], lambda x: x.copy() if type(x) is list else x)
            new.__setstate__(state)
    return new


def place(iterator: Iterator) -> Any:
    """Returns where it stands, equal for two that give the same from here on.

    Example:
      >>> numbers = iter([1, 2])
      >>> before = place(numbers)
      >>> place(copied(numbers)) == before, next(numbers), place(numbers) == before
      (True, 1, False)
    """
    make, arguments, *state = _parts(iterator)
    if make is iter and type(arguments[0]) is list:  # one of a dict makes a list each time
        arguments, state = (arguments[0][state[0] if state else 0 :],), []
    return _mapped(place, (make, arguments, *state), _identity)


def _identity(value: object) -> Any:
    if type(value) is list:
        return [_mapped(place, x, _identity) for x in value]
    return value if isinstance(value, (int, range)) else id(value)


def _parts(iterator: Iterator) -> tuple:
    with _no_warnings():
        return tuple(x for x in iterator.__reduce__() if x is not None)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _mapped(
    function: Callable[[Iterator], object],
    value: object,
    otherwise: Callable[[object], object] = lambda x: x,
) -> Any:
    if type(value) is tuple:
        return tuple(_mapped(function, x, otherwise) for x in value)
    return function(value) if is_iterator(value) else otherwise(value)
