"""Scopes of operations and names of weights as paths of modules."""

from __future__ import annotations

import pytest

from anyjax.explorer.scopes import Scopes

TORCH = Scopes({"": "Net", "a": "A", "a.b": "B", "a.b.c/d": "C", "shared.x": "X"})
CASES = {
    "": "",
    "/": "",
    "/a/": "a",
    "/a/b": "a.b",
    "//a.b": "a.b",
    "/a/b/softmax/exp": "a.b",
    "/a/b/c/d": "a.b.c/d",
    "/a/shared.x": "shared.x",  # called from elsewhere
    "/jvp(a)/transpose(jvp(b))": "a.b",
    "/unknown": "",
}


@pytest.mark.parametrize("scope", CASES)
def test_scopes_of_torch(scope):
    assert TORCH.module_of(scope) == CASES[scope]


def test_nodes_are_in_the_scope_around_them():
    nodes = Scopes({}, "/", of_nodes=True)
    assert nodes.module_of("//layers.0/mlp/MatMul") == "layers.0/mlp"
    assert nodes.module_of("/MatMul_3") == nodes.module_of("/") == ""


def test_owners():
    assert TORCH.owner_of("a.b.weight") == "a.b"
    assert TORCH.owner_of("a.unknown.weight") == "a" and TORCH.owner_of("weight") == ""
    assert Scopes({}, "/").owner_of("dense/kernel") == "dense"
    stacks = Scopes({"": "Net", "a": "A"}, stacks={"*.weight": "a.weight"})
    assert stacks.owner_of("*.weight") == "a"
