"""Inputs of the right shape for any transformers model, from its config and the signature of
forward.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from tojax.errors import Unsupported


def example(module: Any, ids: np.ndarray | None = None, length: int = 16) -> dict[str, np.ndarray]:
    """Arguments that ``module`` can be called with: prompts, or seeded noise for images and sound.

    Args:
      module: a transformers model, on any device.
      ids: token ids ``[batch, length]`` to use where the model takes text.
      length: how many tokens to make up without ``ids``.

    Raises:
      Unsupported: the model takes something else.
    """
    config, takes = module.config, inspect.signature(module.forward).parameters
    rng = np.random.default_rng(0)
    if ids is None:
        vocab = _first(config.get_text_config(), "vocab_size", default=None)
        vocab = vocab or _first(config, "vocab_size", default=100)
        ids = rng.integers(3, max(4, min(vocab, 1000) - 1), (1, length))
    channels, size = (
        _first(config, "num_channels", default=3),
        _first(config, "image_size", default=224),
    )
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = 2 * _first(config, "max_source_positions", default=100)
    made = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "pixel_values": rng.standard_normal((1, channels, height, width), np.float32),
        "input_values": rng.standard_normal((1, 16000), np.float32),
        "input_features": rng.standard_normal(
            (1, _first(config, "num_mel_bins", default=80), frames), np.float32
        ),
    }
    names = [module.main_input_name] if module.main_input_name in takes else []
    if "input_ids" in takes:  # also beside images; a mask alone would be one of patches
        names += [n for n in ("input_ids", "attention_mask") if n in takes]
    named = {n for n, p in takes.items() if p.default is p.empty}
    kinds = {n: p.kind for n, p in takes.items()}
    names += [n for n in named if kinds[n] is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if hasattr(config, "projection_dim") and "pixel_values" in takes:  # text beside images
        names.append("pixel_values")
    names = list(dict.fromkeys(names))
    if unknown := [n for n in names if n not in made]:
        raise Unsupported(
            f"{type(module).__name__} takes {', '.join(unknown)}",
            why="example inputs are made for text, images and sound only",
            do="call tojax.from_pretrained(...) from Python with inputs of your own",
        )
    inputs = {n: made[n] for n in names}
    if config.is_encoder_decoder and "decoder_input_ids" in takes:
        start = getattr(config, "decoder_start_token_id", None)
        inputs["decoder_input_ids"] = np.full((len(ids), 4), start if start is not None else 1)
    return inputs


def _first(config: Any, name: str, default: Any) -> Any:
    """The field in the config or one of its parts."""
    for part in (
        config,
        *(getattr(config, k, None) for k in ("text_config", "vision_config", "audio_config")),
    ):
        if part is not None and getattr(part, name, None) is not None:
            return getattr(part, name)
    return default
