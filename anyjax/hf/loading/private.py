"""Every private name of transformers that loading uses; generation has a file of its own.

Names are looked up when this file is imported. A missing one is an error that names the feature
which needs it, see ``anyjax.private_names``.
"""

from __future__ import annotations

from anyjax.private_names import need, target

# Gets the tensors by name, renames and merges them.
LOADER = target("transformers.modeling_utils:PreTrainedModel", "_load_pretrained_model", "loading")
_ = LOADER.place
need("transformers.modeling_utils:PreTrainedModel._from_config", "models without weights")

# Attributes of objects and classes.
ATTRIBUTES = {
    "_from_config": "models without weights",
    "_model_mapping": "pipelines",
    "_load_feature_extractor": "pipelines",
}
