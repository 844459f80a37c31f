import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.trees import Ordered, keep_order

X = np.arange(4.0, dtype=np.float32)
OUT = {"z": 1, "a": ({"q": 2, "b": [{"y": 3, "x": 4}]},), "m": {"a": 5, "b": 6}}


def shape(tree):
    if isinstance(tree, dict):
        return [(k, shape(v)) for k, v in tree.items()]
    return [*map(shape, tree)] if isinstance(tree, (list, tuple)) else None


def filled(tree, x):
    if isinstance(tree, dict):
        return {k: filled(v, x) for k, v in tree.items()}
    return type(tree)(filled(v, x) for v in tree) if isinstance(tree, (list, tuple)) else x + tree


class Branches(nn.Module):
    def forward(self, x):
        return filled(OUT, x if x.sum() > 0 else -x)


class Checked(nn.Module):
    def forward(self, x):
        torch._check_tensor_all(x >= 0, lambda: "negative")
        return filled(OUT, x) | {"a number": 3}


@pytest.mark.parametrize("module", [lambda x: filled(OUT, x), Branches(), Checked()])
def test_dicts_keep_their_order(module):
    model = anyjax.from_torch(module)
    expected = shape(module(torch.from_numpy(X)))
    for out in (model(X), model(X), model.apply({}, X), model.apply({}, X, mutable=True)[0]):
        assert shape(out) == expected and type(out) is dict and type(out["a"][0]) is dict
    jax.tree.map(np.testing.assert_array_equal, model(X), model.apply({}, X))


def test_sorted_dicts_are_left_as_they_are():
    tree = {"a": 1, "b": (2, {"c": 3})}
    assert type(keep_order(tree)) is dict and jax.tree.structure(
        keep_order(tree)
    ) == jax.tree.structure(tree)
    assert type(keep_order(OUT)) is Ordered
    assert jax.tree.leaves(keep_order(OUT)) == [1, 2, 3, 4, 5, 6]


def test_a_saved_model(tmp_path):
    model = anyjax.from_torch(lambda x: filled(OUT, x))
    model.save(tmp_path / "saved", X)
    loaded = anyjax.load(tmp_path / "saved")
    assert shape(loaded(X)) == shape(OUT)
