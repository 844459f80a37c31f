"""Example inputs for any transformers model, from its config and the signature of forward."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from anyjax.errors import Unsupported

if TYPE_CHECKING:
    import torch


def example(
    module: torch.nn.Module, ids: np.ndarray | None = None, length: int = 16
) -> dict[str, np.ndarray]:
    """Returns arguments to call ``module`` with: prompts, or seeded noise for images and sound.

    Args:
      module: a transformers model, on any device.
      ids: token ids ``[batch, length]`` to use where the model takes text.
      length: how many tokens to make up without ``ids``.

    Raises:
      Unsupported: the model takes something else.
    """
    config, parameters = module.config, inspect.signature(module.forward).parameters
    rng = np.random.default_rng(0)
    if ids is None:
        vocab = _config_value(config.get_text_config(), "vocab_size", default=None)
        vocab = vocab or _config_value(config, "vocab_size", default=100)
        ids = rng.integers(3, max(4, min(vocab, 1000) - 1), (1, length))
    channels = _config_value(config, "num_channels", default=3)
    size = _config_value(config, "image_size", default=224)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = 2 * _config_value(config, "max_source_positions", default=100)
    values = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "pixel_values": rng.standard_normal((1, channels, height, width), np.float32),
        "input_values": rng.standard_normal((1, 16000), np.float32),
        "input_features": rng.standard_normal(
            (1, _config_value(config, "num_mel_bins", default=80), frames), np.float32
        ),
    }
    names = [module.main_input_name] if module.main_input_name in parameters else []
    if "input_ids" in parameters:  # also beside images; a mask alone would be one of patches
        names += [n for n in ("input_ids", "attention_mask") if n in parameters]
    required = {n for n, p in parameters.items() if p.default is p.empty}
    kinds = {n: p.kind for n, p in parameters.items()}
    names += [n for n in required if kinds[n] is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if hasattr(config, "projection_dim") and "pixel_values" in parameters:  # text beside images
        names.append("pixel_values")
    names = list(dict.fromkeys(names))
    if unknown := [n for n in names if n not in values]:
        raise Unsupported(
            f"{type(module).__name__} takes {', '.join(unknown)}",
            why="example inputs are made for text, images and sound only",
            do="call anyjax.from_pretrained(...) from Python with inputs of your own",
        )
    inputs = {n: values[n] for n in names}
    if config.is_encoder_decoder and "decoder_input_ids" in parameters:
        start = getattr(config, "decoder_start_token_id", None)
        inputs["decoder_input_ids"] = np.full((len(ids), 4), start if start is not None else 1)
    return inputs


def _config_value(config: object, name: str, default: object) -> Any:
    """Returns the first value of a field in the config and its nested configs."""
    nested = (getattr(config, k, None) for k in ("text_config", "vision_config", "audio_config"))
    for subconfig in (config, *nested):
        if subconfig is not None and getattr(subconfig, name, None) is not None:
            return getattr(subconfig, name)
    return default
