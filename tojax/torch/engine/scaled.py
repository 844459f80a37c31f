"""``x.add_(y, alpha=a)`` and ``x.addcdiv_(y, z, value=a)`` where ``a`` is a tensor: torch reads its
value, which only the program may know (the rate of an optimizer whose schedule changes it).
"""

from __future__ import annotations

from typing import Any

import torch

from tojax.torch.core.lifting import is_traced

KEYWORDS = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
FUNCTIONS = {
    getattr(home, name + end): keyword
    for name, keyword in KEYWORDS.items()
    for home, end in ((torch, ""), (torch.Tensor, ""), (torch.Tensor, "_"))
}


def serve(mode, func, args, kwargs) -> Any:
    """The same with the factor on the second operand."""
    factor = kwargs.get(FUNCTIONS[func])
    if not is_traced(factor) or len(args) < 2:
        return NotImplemented
    rest = {k: x for k, x in kwargs.items() if k != FUNCTIONS[func]}
    with mode:
        return func(args[0], args[1] * factor.reshape(()), *args[2:], **rest)
