"""Statements without what undoes itself."""

import ast
import textwrap

import pytest

from anyjax.flax.codegen.python.peephole import plainer

pytestmark = pytest.mark.sample(every=15)


def plain(text: str) -> str:
    body = ast.parse(textwrap.dedent(text)).body
    return "\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in plainer(body))


@pytest.mark.parametrize(
    ("code", "simplified"),
    [
        ("q = f(x).swapaxes(1, 2)\ny = g(q.swapaxes(1, 2))", "q = f(x)\ny = g(q)"),
        (
            "q = f(x).swapaxes(1, 2)\nq = g(q.swapaxes(1, 2)) + h(q.swapaxes(1, 2))\ny = k(q)",
            "q = f(x)\nq = g(q) + h(q)\ny = k(q)",
        ),
        (
            "cumsum = jnp.bincount(x, length=n).cumsum(0)\ny = f(x, jnp.diff(cumsum, prepend=0))",
            "counts = jnp.bincount(x, length=n)\ny = f(x, counts)",
        ),
        ("y = x.transpose(0, 3, 1, 2).reshape(b, 48, -1).mT", "y = x.reshape(b, -1, 48)"),
        (
            "y = x.mean((1, 2), keepdims=True).transpose(0, 3, 1, 2).reshape(b, -1)",
            "y = x.mean((1, 2))",
        ),
        (
            "b, n = x.shape\nk = x.shape[0]\ny = x.reshape(b, -1)",
            "b, n = x.shape\ny = x.reshape(b, -1)",
        ),
    ],
)  # fmt: skip
def test_what_undoes_itself_goes(code, simplified):
    assert plain(code) == simplified


@pytest.mark.parametrize(
    "text",
    [
        "q = f(x).swapaxes(1, 2)\ny = g(q.swapaxes(1, 2)) + q",  # read as it is, too
        "q = f(x).swapaxes(1, 2)\ny = g(q.swapaxes(2, 3))",  # other axes
        "q = f(x).swapaxes(1, 2)\nfor a in s:\n    q = g(q.swapaxes(1, 2))",  # not in all rounds
        "y = x.mean((1, 2), keepdims=True).transpose(0, 3, 1, 2).reshape(b, c, -1)",
        "y = x.transpose(0, 3, 1, 2).reshape(b, -1)",  # channels come first in each row
    ],
)
def test_what_is_needed_stays(text):
    assert plain(text) == text
