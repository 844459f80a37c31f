"""Functions with statements rewritten: outside of traces they do what they did."""

import types

import pytest
import torch

from anyjax.torch.data_dependent import rewriting


def loops(x, most=5):
    total, k = 0, 0
    while x < 20 and k < most:
        k += 1
        if x % 2 == 0:
            x = x + 3
            continue
        x = x * 2
        total += x
        if total > 30:
            break
    for i in range(10, 0, -3):
        total = total + i if i != 4 else total
    if total > 5:
        name = "large"
    else:
        name = "small"
    return x, total, k, i, name


class Holder:
    def __init__(self):
        self.pair = 0, []

    def fill(self, x):
        while self.pair[0] < 3:
            self.pair = (self.pair[0] + 1, [*self.pair[1], x])
        return self.pair


def closing(scale):
    def function(x):
        while x < 10:
            x = x * scale
        return x

    return function


def yields(x):
    while x < 3:
        yield x
        x = x + 1


def returns_inside(x):
    while x < 3:
        for i in range(x):
            if i == 2:
                return x
        x = x + 1
    return 0


def lines(function, kinds=("while", "for", "if")) -> frozenset[int]:
    tree = rewriting.function_of(function.__code__)
    nodes = [*rewriting.within(tree.body)]
    return frozenset(x.lineno for x in nodes if type(x).__name__.lower() in kinds)


def other(function):
    code = rewriting.rewritten(function.__code__, lines(function, ("while", "for")))
    new = types.FunctionType(code, function.__globals__, "new", None, function.__closure__)
    new.__defaults__ = function.__defaults__
    return new


@pytest.mark.parametrize("x", [0, 1, 3, 50])
def test_the_same_results(x):
    assert other(loops)(x) == loops(x)
    assert other(loops)(torch.tensor(x))[:3] == loops(torch.tensor(x))[:3]


def test_attributes_and_free_variables():
    first, second = Holder(), Holder()
    assert other(Holder.fill)(first, 7) == second.fill(7)
    function = closing(3)
    assert other(function)(1) == function(1) == 27


def returns_without_gradient(x):
    while x < 3:
        with torch.no_grad():
            if x > 2:
                return x * 2
        x = x + 1
    return x


@pytest.mark.parametrize("function", [yields, returns_inside, returns_without_gradient])
def test_what_leaves_the_function_is_left(function):
    assert rewriting.rewritten(function.__code__, lines(function, ("while",))) is None


def test_code_without_its_source():
    space: dict = {}
    exec("def f(x):\n    while x: x = x - 1\n", space)
    assert rewriting.function_of(space["f"].__code__) is None
