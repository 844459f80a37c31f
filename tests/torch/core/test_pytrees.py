"""Trees of tensors: the same as torch's, without what keeps their leaves alive."""

import gc
import weakref

import torch

from anyjax.torch.core.pytrees import flatten, map_tensors


def test_map_tensors():
    x = torch.ones(2)
    tree = {"a": [x, 1], "b": (None, x), "c": torch.max(torch.ones(2, 2), 1)}
    got = map_tensors(lambda t: t.shape, tree)
    assert got["a"] == [(2,), 1]
    assert got["b"] == (None, (2,))
    assert tuple(got["c"]) == ((2,), (2,))
    assert map_tensors(torch.Tensor.dim, x) == 1


def test_leaves_are_let_go():
    gc.disable()
    try:
        x = torch.ones(2)
        leaves, structure = flatten([x, (x, 2)])
        assert structure.unflatten([1, 2, 3]) == [1, (2, 3)]
        gone = weakref.ref(x)
        del leaves, x
        assert gone() is None
    finally:
        gc.enable()
