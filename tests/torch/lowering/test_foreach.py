"""``torch._foreach_*`` of every kind: lists, numbers, one for each, in place."""

import numpy as np
import pytest
import torch

from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=4)

X = np.array([1, -2, 3, 0.5], np.float32)


def in_place(name, *rest):
    def function(x):
        all = [x * 1, x * 2]
        getattr(torch, name)(all, *rest)
        return tuple(all)

    return function


UNARY = "abs neg exp erf sign floor round tanh sigmoid reciprocal max"
CASES = {
    name: lambda x, f=f"_foreach_{name}": getattr(torch, f)([x, x * 2]) for name in UNARY.split()
}
CASES |= {
    "add, number": lambda x: torch._foreach_add([x, x * 2], 1.5),
    "add, list": lambda x: torch._foreach_add([x, x * 2], [x * 3, x], alpha=2),
    "add, numbers": lambda x: torch._foreach_add([x, x], [1.0, 2.0]),
    "sub": lambda x: torch._foreach_sub([x, x * 2], [x * 3, x], alpha=2),
    "mul, tensor": lambda x: torch._foreach_mul([x, x * 2], x.sum()),
    "div": lambda x: torch._foreach_div([x, x * 2], [x + 7, x + 9]),
    "pow": lambda x: torch._foreach_pow([x, x * 2], 2),
    "pow, of a number": lambda x: torch._foreach_pow(2.0, [x, x * 2]),
    "clamp_min": lambda x: torch._foreach_clamp_min([x, x * 2], 0.25),
    "maximum": lambda x: torch._foreach_maximum([x, x * 2], [x * 2, x]),
    "lerp": lambda x: torch._foreach_lerp([x, x * 2], [x * 2, x], 0.3),
    "addcmul": lambda x: torch._foreach_addcmul([x, x], [x, x], [x * 2, x], 2.0),
    "addcmul, numbers": lambda x: torch._foreach_addcmul([x, x], [x, x], [x * 2, x], [2.0, 3.0]),
    "addcdiv, tensor": lambda x: torch._foreach_addcdiv(
        [x, x], [x, x], [x + 7, x + 9], torch.tensor([2.0, 3.0])
    ),
    "norm": lambda x: torch._foreach_norm([x, x * 2]),
    "norm, 1": lambda x: torch._foreach_norm([x, x * 2], 1),
    "total norm": lambda x: torch.nn.utils.get_total_norm([x, x * 2], foreach=True),
    "in place": in_place("_foreach_add_", 1.0),
    "in place, numbers": in_place("_foreach_mul_", [2.0, 3.0]),
    "zero": in_place("_foreach_zero_"),
    "copy": lambda x: (lambda y: (torch._foreach_copy_(y, [x, x * 2]), tuple(y))[1])(
        [torch.zeros(4), torch.ones(4)]
    ),
}


# Those that torch has no gradient for, or none but 0.
VALUES = {"sign", "floor", "round", "zero", "copy", "mul, tensor", "addcdiv, tensor", "total norm"}


@pytest.mark.parametrize("name", CASES)
def test_foreach(name):
    assert_same_values(CASES[name], X, reduction=8)
    if name not in VALUES:
        assert_same_gradients(CASES[name], X, reduction=64)
