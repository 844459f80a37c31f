"""``torch._foreach_*``: an operator on each tensor of a list, as optimizers and norms call it."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
PREFIX = "aten::_foreach_"
# With another name, or other arguments, than the operator on one tensor.
ONE = {
    "addcmul": lambda x, a, b, value=1: x.addcmul(a * value, b),
    "addcdiv": lambda x, a, b, value=1: x.addcdiv(a * value, b),
    "norm": lambda x, ord=2, dtype=None: aten.linalg_vector_norm(x, ord, dtype=dtype),
    "powsum": lambda x, ord, dtype=None: aten.linalg__powsum(x, ord, dtype=dtype),
}


def serves(op: Any) -> bool:
    """Returns whether this is one of them."""
    return op._schema.name.startswith(PREFIX)


def each(op: Any, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """Returns the results, one after another; what is no list counts for all of them."""
    name = op._schema.name.removeprefix(PREFIX)
    single: Any = ONE.get(name) or getattr(aten, name)
    if "Tensor scalars" in str(op._schema):  # a number for each, in one tensor
        args = (*args[:-1], args[-1].unbind())
    count = next(len(x) for x in args if isinstance(x, (list, tuple)))
    rows = zip(*(x if isinstance(x, (list, tuple)) else [x] * count for x in args), strict=True)
    return [single(*row, **kwargs) for row in rows]
