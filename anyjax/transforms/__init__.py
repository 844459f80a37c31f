"""Transformations of a Model into another one, whichever framework made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy

if TYPE_CHECKING:
    from anyjax.transforms._fold_batchnorm import fold_batchnorm as fold_batchnorm
    from anyjax.transforms._intermediates import edit as edit
    from anyjax.transforms._intermediates import intermediates as intermediates
    from anyjax.transforms._quantize import quantize as quantize
    from anyjax.transforms._roll import explain as explain
    from anyjax.transforms._roll import roll as roll
    from anyjax.transforms._roll import unroll as unroll

lazy.facade(
    __name__,
    {
        "fold_batchnorm": "anyjax.transforms._fold_batchnorm",
        "edit": "anyjax.transforms._intermediates",
        "intermediates": "anyjax.transforms._intermediates",
        "quantize": "anyjax.transforms._quantize",
        "explain": "anyjax.transforms._roll",
        "roll": "anyjax.transforms._roll",
        "unroll": "anyjax.transforms._roll",
    },
)
