"""A transformers model's cache as an argument, by any name that transformers has had for it."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from anyjax.errors import WrongArguments
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import torch

# Since transformers 5.24; of most models before; of Mamba and its like before.
NAMES = ("cache", "past_key_values", "cache_params")


def renamed(
    module: torch.nn.Module, signature: inspect.Signature, kwargs: dict[str, PyTree]
) -> dict[str, Any]:
    """Returns the arguments with the cache under the name that the model's forward has for it.

    A forward that takes ``**kwargs`` drops any other name without a word.

    Raises:
      WrongArguments: there are caches under two names.
    """
    names = [name for name in NAMES if name in kwargs]
    if not names or "transformers" not in sys.modules:
        return kwargs
    if not isinstance(module, sys.modules["transformers"].PreTrainedModel):
        return kwargs
    if len(names) > 1:
        raise WrongArguments(
            f"a cache as {' and as '.join(names)}",
            why="these are names of one argument in different versions of transformers",
            do=f"give one of them: {names[0]}=",
        )
    forward_name = next((name for name in NAMES if name in signature.parameters), names[0])
    return {forward_name if name == names[0] else name: value for name, value in kwargs.items()}
