"""Plans for tensor parallelism and example calls, which transformers' models bring along."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Call = tuple[tuple, dict[str, Any], None]


def own_plan(module: torch.nn.Module) -> dict[str, str]:
    """Returns the class's plan for tensor parallelism: patterns of names, and kinds. Empty without
    one.
    """
    plan = getattr(module, "tp_plan", None)
    return plan if isinstance(plan, dict) else {}


def examples(module: torch.nn.Module) -> list[Call]:
    """A call that the module can take, where it says what it takes."""
    config, main = getattr(module, "config", None), getattr(module, "main_input_name", None)
    if config is None:
        return []
    if main == "input_ids":
        ids = np.ones((2, 8), np.int32)
        both = {"decoder_input_ids": ids} if getattr(config, "is_encoder_decoder", False) else {}
        return [((), {"input_ids": ids, **both}, None)]
    size, channels = getattr(config, "image_size", None), getattr(config, "num_channels", None)
    if main == "pixel_values" and isinstance(size, int) and isinstance(channels, int):
        return [((), {"pixel_values": np.zeros((2, channels, size, size), np.float32)}, None)]
    return []
