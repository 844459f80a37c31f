"""A model on disk that runs without its source framework: jax.export programs beside safetensors.

A folder holds ``model.json`` (names, calls and their structures), ``params.safetensors``,
``state.safetensors`` and one serialized program per kind of call, and perhaps further programs by
name. Programs of calls are differentiable once (``derivatives``); all run on the platforms that
they were saved for.

``calls`` describes and compares calls, ``dimensions`` has the sizes that may vary, ``programs``
exports, ``folder`` writes folders atomically, ``writing`` and ``reading`` save and load, and
``source`` is the source of a loaded model.
"""

from __future__ import annotations

from anyjax.saved.calls import Output
from anyjax.saved.folder import whole
from anyjax.saved.programs import PLATFORMS, Extra
from anyjax.saved.reading import read
from anyjax.saved.source import SavedSource
from anyjax.saved.writing import save

__all__ = ["PLATFORMS", "Extra", "Output", "SavedSource", "read", "save", "whole"]
