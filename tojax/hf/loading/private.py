"""Every private name of transformers that loading uses; that of generation has the others.

A name is looked up when this file is loaded; one that is gone is an error that says which feature
needs it, see ``tojax.private_names``.
"""

from __future__ import annotations

from tojax.private_names import need, target

# Gets the tensors by name, renames and merges them.
LOADER = target("transformers.modeling_utils:PreTrainedModel", "_load_pretrained_model", "loading")
_ = LOADER.place
need("transformers.modeling_utils:PreTrainedModel._from_config", "models without weights")

# Attributes of objects and of classes that are found by name.
ATTRIBUTES = {
    "_from_config": "models without weights",
    "_model_mapping": "pipelines",
    "_load_feature_extractor": "pipelines",
}
