"""``torch.autocast`` inside forward: torch's own dispatch casts, before an operator arrives here.

So its lists of operators hold. What is left is to take apart the composite operators that would be
lowered whole although torch casts inside of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from anyjax.errors import Unsupported
from anyjax.torch.core import private

PARTS = """_convolution_mode cov einsum gru gru_cell inner istft linalg_matmul linalg_pinv
lstm lstm_cell nll_loss_nd pad rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell tensordot"""


def casts_inside(op) -> bool:
    """Returns whether autocast does not know an operator itself, but some of what it is made of."""
    return op._schema.name.removeprefix("aten::") in PARTS.split()


@contextlib.contextmanager
def switched_on(op) -> Iterator[None]:
    """Autocast inside an operator's handler, which the dispatcher has left it for."""
    if "linalg_pinv" in op._schema.name:
        raise Unsupported(
            "torch.linalg.pinv under torch.autocast",
            why="torch multiplies the factors of its result in the lower precision",
            do='leave autocast for it: torch.autocast("cpu", enabled=False)',
        )
    private.set_excluded(private.AUTOCAST_CPU, False)
    try:
        yield
    finally:
        private.set_excluded(private.AUTOCAST_CPU, True)


def refuse_around() -> None:
    """Raises Unsupported where autocast is on outside of forward."""
    if not private.is_excluded(private.AUTOCAST_CPU):
        raise Unsupported(
            "torch.autocast around a traced model",
            why="a compiled program is used again where autocast is off, or was made where it was",
            do="enter torch.autocast inside forward, or convert model.to(torch.bfloat16)",
        )
