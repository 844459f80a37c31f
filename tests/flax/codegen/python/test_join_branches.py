"""Several bodies as one, under conditions."""

import ast
import copy

import pytest

from anyjax.flax.codegen.python.join_branches import Guard, Inseparable, branched, text_of


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def joined(texts, tests) -> str:
    return text_of(branched([body(x) for x in texts], tests))


FLAG = Guard("self.flag", "not self.flag", [True, False])


def test_what_is_shared_stands_alone():
    body = joined(["x = f(x)\ny = g(x)\nz = h(y)", "x = f(x)\ny = k(x)\nz = h(y)"], [FLAG])
    assert body == "x = f(x)\nif self.flag:\n    y = g(x)\nelse:\n    y = k(x)\nz = h(y)"


def test_what_only_one_does():
    assert joined(["x = f(x)", "x = f(x)\nx = g(x)"], [FLAG]) == (
        "x = f(x)\nif not self.flag:\n    x = g(x)"
    )


def test_three_kinds_by_two_tests():
    tests = [Guard("a", "not a", [True, False, False]), Guard("b", "not b", [None, True, False])]
    body = joined(["x = f(x)", "x = g(x)", "x = h(x)"], tests)
    for flags, name in {(1, 1): "f", (1, 0): "f", (0, 1): "g", (0, 0): "h"}.items():
        names = {"a": flags[0], "b": flags[1], "x": 0} | {k: lambda _, k=k: k for k in "fgh"}
        exec(body, names)
        assert names["x"] == name


def test_a_test_says_nothing_after_its_variable_was_stored():
    test = Guard("p is None", "p is not None", [True, False], "p")
    with pytest.raises(Inseparable):
        joined(["p = f(x)\ny = g(p)", "p = f(x)\ny = h(p)"], [test])


def test_what_no_test_tells_apart_is_refused():
    with pytest.raises(Inseparable):
        joined(["x = f(x)", "x = g(x)"], [Guard("a", "not a", [True, True])])


def test_bodies_stay_as_they_are():
    bodies = [body("x = f(x)\ny = g(x)"), body("x = f(x)\ny = h(x)")]
    originals = copy.deepcopy(bodies)
    branched(bodies, [FLAG])
    assert [text_of(x) for x in bodies] == [text_of(x) for x in originals]
