"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them."""

from tojax.hf._generate import generate
from tojax.hf.load import from_pretrained

__all__ = ["from_pretrained", "generate"]
