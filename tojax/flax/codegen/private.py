"""Private names of torch that source code is written with."""

from typing import Any

import torch

from tojax.private_names import need

export_config = need("torch._functorch.config", "source code of modules whose sizes arrays tell")


def symbol_of(size: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """A symbolic number before what is known of it was put in its place."""
    return size.node._expr
