"""Symbolic sizes: what torch code reads of arrays whose lengths the program leaves open.

JAX writes such a size as a polynomial of named ones (``jax.export.symbolic_shape``). Torch code
gets a ``torch.SymInt`` around it whose arithmetic is JAX's: one set of rules and constraints
decides what is known. ``length >= 1`` always is; ``length > 4`` is where a constraint says so, and
else a condition like one on values: the code is run for both answers.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import jax
import torch

from anyjax.private_names import Inconclusive
from anyjax.torch.core import current_trace, diagnostics, private
from anyjax.torch.core.lengths import Lengths, decided
from anyjax.typing import PyTree

Size = Any  # an int, or JAX's symbolic dimension: a class without a public name
PLAIN = {int, float, bool, str, type(None), torch.dtype}
CLASS = "'_DimExpr'"  # as errors have it, of what takes no symbolic dimension for a number


class Condition(NamedTuple):
    """A condition on sizes that holds for some of their values.

    Attributes:
      key: the same for all conditions that are the same.
      holds: it as an array.
      general: whether it holds for all sizes but the smallest one, None if that depends, too.
      decided: whether values decide the sizes.
    """

    key: str
    holds: Callable[[], jax.Array]
    general: bool | None
    decided: bool = False


class Environment:
    """The ``ShapeEnv`` that torch's own Python code asks whether a condition is known."""

    def evaluate_sym_node(self, node: Node, size_oblivious: bool = False, fallback_value=None):
        """Returns the answer where it is known, else the fallback."""
        unknown = node.condition is not None and fallback_value is not None
        return fallback_value if unknown else node.guard_bool()

    def _maybe_evaluate_static(self, node: Node) -> bool | None:
        return node.value


class Node:
    """A size, or a condition on sizes, in the way that torch asks for one (its ``SymNode``).

    Attributes:
      value: an int, a bool or a symbolic dimension; None for a condition that the sizes decide.
      condition, opposite: such a condition, and whether it is meant not to hold.
    """

    def __init__(
        self,
        value: Size,
        text: str = "",
        condition: Condition | None = None,
        opposite: bool = False,
    ):
        self.value, self.text = value, text or str(value)
        self.condition, self.opposite = condition, opposite

    shape_env, expr = Environment(), property(lambda self: self)
    is_symbolic = lambda self: True
    is_nested_int = has_hint = lambda self: False
    nested_int = lambda self: None
    _hint = hint = None
    free_symbols: frozenset = frozenset()  # torch's own
    clone = pos = lambda self: self
    wrap_int = wrap_bool = wrap_float = lambda self, number: Node(number)
    is_bool = lambda self: self.value is None or isinstance(self.value, bool)
    is_float = lambda self: isinstance(self.value, (float, jax.Array))
    is_int = lambda self: not self.is_bool() and not self.is_float()
    is_constant = lambda self: isinstance(self.value, int)
    maybe_as_int = maybe_as_bool = lambda self: self.value if self.is_constant() else None

    def __repr__(self) -> str:
        return self.text

    def guard_int(self, file: str = "", line: int = 0) -> int:
        """Returns the number, where code cannot do without."""
        if isinstance(self.value, int):
            return self.value
        if trace := current_trace.trace():
            trace.ask_function()
        raise diagnostics.unknown_size(f"the number {self.text}", self.value)

    def bool_(self) -> bool:
        """Decides which way code goes."""
        if self.condition is None:
            return bool(self.value)
        return current_trace.trace().size_condition(self.condition, self.text) != self.opposite

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        """Answers torch's kernels; lengths that values decide are as any other but the smallest."""
        general = self.general() if self.condition is not None and self.condition.decided else None
        return self.bool_() if general is None else general

    def guard_float(self, file: str = "", line: int = 0) -> float:
        """Returns the number, where code cannot do without."""
        raise diagnostics.unknown_size(f"{self.text} as a float")

    def sym_float(self) -> Node:
        """Returns a size as a float, a number of the program."""
        return self if self.is_float() else Node(_float(self.value), self.text)

    def truediv(self, other: Node) -> Node:
        """Divides: a number of the program."""
        return Node(_float(self.value) / _float(other.value), f"({self.text}) / ({other.text})")

    int_, float_ = guard_int, guard_float
    int_truediv = float_truediv = truediv
    float_pow = lambda self, other: Node(
        _float(self.value) ** _float(other.value), f"({self.text}) ** ({other.text})"
    )
    # Torch's shortcuts.
    statically_known_true = guard_or_false = lambda self, file="", line=0: self.value is True
    guard_or_true = lambda self, file="", line=0: self.value is not False

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        """Checks (``torch._check``); a check that only some sizes pass is left to the program."""
        if self.condition is not None:
            current_trace.trace().size_check(self.condition, self.opposite)
        return self.value is not False

    def guard_size_oblivious(self, file: str = "", line: int = 0) -> bool:
        """Answers torch's kernels, for which a length of 1 may be any other one."""
        return self.value is True or self.general() is True

    def general(self) -> bool | None:
        """Returns the answer for all sizes but the smallest one."""
        answer = None if self.condition is None else self.condition.general
        return None if answer is None else answer != self.opposite

    def sym_not(self) -> Node:
        if self.condition is None:
            return Node(not self.value)
        return Node(None, f"not {self.text}", self.condition, not self.opposite)

    def sym_max(self, other: Node) -> Node:
        return _extreme_for(sys._getframe(1), "max", self.value, other.value)

    def sym_min(self, other: Node) -> Node:
        return _extreme_for(sys._getframe(1), "min", self.value, other.value)

    sym_sum = lambda self, others: Node(sum(x.value for x in others))
    sym_ite = lambda self, yes, no: yes if self.guard_bool() else no


def at_least(size: Size, least: int) -> bool | None:
    """Returns whether a size is at least so large; None if some of its values are.

    Example:
      >>> (length,) = jax.export.symbolic_shape("length", constraints=["length >= 4"])
      >>> at_least(length, 2), at_least(length - length, 1), at_least(length, 5)
      (True, False, None)
    """
    if decided(size):
        low, high = lengths().interval(size)
        return at_least(low, least) or (None if at_least(high, least) is not False else False)
    try:
        return bool(size >= least)
    except Inconclusive:
        return None


def lengths() -> Lengths:
    """Returns the lengths that values of the trace decide."""
    return current_trace.trace().lengths


EXTREMES: dict[str, Callable] = {"max": jax.core.max_dim, "min": jax.core.min_dim}


def extreme(name: str, x: Size, y: Size) -> Size:
    """Returns the larger ("max") or the smaller ("min") of two."""
    if not decided(x - y):
        return EXTREMES[name](x, y)
    if at_least(x - y, 0):
        return x if name == "max" else y
    if at_least(y - x, 0):
        return y if name == "max" else x
    return private.unsimplified(name, x, y)


def _extreme_for(frame: FrameType, name: str, x: Size, y: Size) -> Node:
    """Returns what code gets; torch's kernels ask for strides, for which a length is at least 1."""
    function = partial(extreme, name) if frame.f_code.co_name == f"sym_{name}" else EXTREMES[name]
    return Node(function(x, y))


def _float(value: Any) -> Any:
    """Returns a size, or a float, as one that is computed with."""
    if isinstance(value, (int, float, jax.Array)):
        return value
    return as_array(value).astype(jax.numpy.result_type(float))


def is_zero(size: Size) -> Node:
    """Returns whether a number that sizes make is 0."""
    above, below = at_least(size, 0), at_least(-size, 0)
    if above and below:
        return Node(True)
    if False in (above, below) or at_least(size, 1) or at_least(-size, 1):
        return Node(False)
    key = min(str(size), str(-size))
    return Node(None, "", Condition(key, lambda: as_array(size) == 0, False, decided(size)))


def is_one(size: Size) -> bool:
    """Returns whether a length is 1, where the shape of a result depends on it.

    Raises:
      DataDependent: it may be.
    """
    is_equal = is_zero(size - 1)
    if is_equal.condition is not None:
        raise diagnostics.unknown_size(f"whether {size} == 1")
    return is_equal.value


def is_positive(size: Size) -> Node:
    """Returns whether a number that sizes make is at least 0."""
    answer = at_least(size, 0)
    if answer is not None:
        return Node(answer)
    if at_least(-size, 0):
        return is_zero(size)
    if at_least(size, -1):
        return is_zero(size + 1).sym_not()
    holds = lambda: as_array(size) >= 0
    return Node(None, "", Condition(f"{size} >= 0", holds, None, decided(size)))


def _computed(function: Callable) -> Callable[..., Node]:
    def compute(self: Node, *others: Node) -> Node:
        numbers = [x.value for x in (self, *others)]
        if any(isinstance(x, (float, jax.Array)) for x in numbers):
            text = ", ".join(x.text for x in (self, *others))  # two floats of one text are one
            return Node(function(*map(_float, numbers)), f"{function.__name__}({text})")
        return Node(function(*numbers))

    return compute


def _compared(
    sign: str, function: Callable[[Any, Any], Any], decide: Callable[[Size], Node]
) -> Callable[[Node, Node], Node]:
    """Returns a comparison, from what decides it by the difference; of floats the program does."""

    def compare(self: Node, other: Node) -> Node:
        x, y, text = self.value, other.value, f"{self.text} {sign} {other.text}"
        if any(isinstance(number, (float, jax.Array)) for number in (x, y)):
            return Node(None, text, Condition(text, lambda: function(_float(x), _float(y)), None))
        (node := decide(x - y)).text = text
        return node

    return compare


def _joined(sign: str, function: Callable, deciding: bool) -> Callable[[Node, Node], Node]:
    """Two conditions, one of which may decide alone."""

    def join(self: Node, other: Node) -> Node:
        if self.is_int() or other.is_int():
            _bits(other if self.is_constant() else self)
        unknown = [x for x in (self, other) if x.condition is not None]
        if len({(x.condition.key, x.opposite) for x in unknown if x.condition}) < len(unknown):
            return self
        if len(unknown) < 2:
            answers = [x.value for x in (self, other) if x.condition is None]
            return Node(deciding) if deciding in answers else (*unknown, self)[0]
        text = f"({self.text} {sign} {other.text})"
        general = {x.general() for x in unknown}
        common = general.pop() if len(general) == 1 else deciding if deciding in general else None
        arrays = lambda: (x.condition.holds() != x.opposite for x in unknown if x.condition)
        sized = all(x.condition.decided for x in unknown if x.condition)
        return Node(None, text, Condition(text, lambda: function(*arrays()), common, sized))

    return join


def _bits(self: Node, *others: Node) -> Node:
    """JAX's sizes are polynomials."""
    raise diagnostics.unknown_size(f"a bit of {self.text}")


_ARITHMETIC: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod,
    "floordiv": operator.floordiv, "int_floordiv": operator.floordiv, "neg": operator.neg,
    "pow": operator.pow, "pow_by_natural": operator.pow,
    "abs": lambda size: jax.core.max_dim(size, -size),
}  # fmt: skip
for _name, _function in _ARITHMETIC.items():
    setattr(Node, _name, _computed(_function))
for _name in ("bitwise_xor", "lshift", "rshift"):
    setattr(Node, _name, _bits)
for _name in ("str", "_graph_repr"):
    setattr(Node, _name, Node.__repr__)
for _name, _sign, _decide in (
    ("eq", "==", is_zero),
    ("ne", "!=", lambda difference: is_zero(difference).sym_not()),
    ("ge", ">=", is_positive),
    ("lt", "<", lambda difference: is_positive(difference).sym_not()),
    ("le", "<=", lambda difference: is_positive(-difference)),
    ("gt", ">", lambda difference: is_positive(-difference).sym_not()),
):  # fmt: skip
    setattr(Node, _name, _compared(_sign, getattr(operator, _name), _decide))
for _name in ("sym_and", "and_", "bitwise_and"):
    setattr(Node, _name, _joined("and", jax.numpy.logical_and, False))
for _name in ("sym_or", "or_", "bitwise_or"):
    setattr(Node, _name, _joined("or", jax.numpy.logical_or, True))


def limits(size: Any) -> tuple[int, int]:
    """Returns the numbers that a size of torch code lies between, by its constraints."""
    if isinstance(size, int):
        return size, size
    size = size.node.value
    if isinstance(size, int):
        return size, size
    least = 0 if at_least(size, 0) else -(2**31)
    most = (2**bits - 1 for bits in range(32))
    return least, next((n for n in most if at_least(-size, -n)), 2**31 - 1)


def count(shape: Sequence[object]) -> int:
    """Returns how many elements an array of torch's shape has, at most.

    Example:
      >>> count([2, 3])
      6
    """
    return math.prod(limits(n)[1] for n in shape)


@contextlib.contextmanager
def generally() -> Iterator[None]:
    """In here torch's own code, asked about strides and dtypes, is told what holds for all lengths
    but the smallest one. Its Python kernels are used: those in C++ take no symbolic sizes.
    """
    trace = current_trace.trace()
    outer, trace.generally = trace.generally, True
    try:
        with private.DisableTorchFunction(), private.python_kernels():
            yield
    finally:
        trace.generally = outer


def as_array(size: Size) -> jax.Array:
    """Returns a size as a number of the program."""
    return lengths().value(size) if decided(size) else jax.lax.shape_as_value((size,))[0]


def to_torch(shape: Sequence[Size]) -> tuple[Any, ...]:
    """Returns a shape as torch code reads it."""
    return tuple([n if isinstance(n, int) else torch.SymInt(Node(n)) for n in shape])


def to_jax(value: Any, as_number: bool = False) -> Any:
    """Returns an argument of an operator, with JAX's sizes for torch's, in lists as well; as
    numbers of the program where they are computed with.
    """
    if isinstance(value, torch.SymFloat):
        return value.node.value
    if isinstance(value, torch.SymInt):
        return as_array(value.node.value) if as_number else value.node.value
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_jax, value))
    return value


def symbolic(tree: PyTree) -> bool:
    """Returns whether there is a symbolic size in a shape, or in arguments of an operator."""
    if isinstance(tree, (list, tuple)):
        for x in tree:  # noqa: SIM110  every operator asks: a generator is a call for each item
            if type(x) not in PLAIN and symbolic(x):
                return True
        return False
    if isinstance(tree, torch.Tensor):
        return False
    return isinstance(tree, (torch.SymInt, torch.SymFloat)) or jax.export.is_symbolic_dim(tree)
