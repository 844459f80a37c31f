"""The plans of transformers' models (``tp_plan``) as shardings.

Source: https://huggingface.co/docs/transformers/main/en/perf_infer_gpu_multi
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The dimension of a matrix [out, in], the same in a stack of matrices [expert, out, in].
COLUMNS, ROWS = -2, -1
KINDS = {
    **dict.fromkeys(("colwise", "colwise_rep", "packed_colwise", "colwise_gather_output"), COLUMNS),
    **dict.fromkeys(("local_colwise", "embedding_rowwise", "local_packed_colwise"), COLUMNS),
    **dict.fromkeys(("rowwise", "rowwise_rep", "packed_rowwise", "rowwise_split_input"), ROWS),
    **dict.fromkeys(("local_rowwise", "embedding_colwise", "local_packed_rowwise"), ROWS),
}  # others are replicated, or say how modules work together


def dimensions(
    plan: Mapping[str, str], paths: Mapping[str, list[str]], shapes: Mapping[str, Any], shards: int
) -> dict[str, int]:
    """Returns the dimension of each parameter that the plan divides.

    Args:
      plan: patterns of module or parameter names, where ``*`` is any number, and their kinds.
      paths: all names of each parameter: tied weights have several.
      shapes: arrays or their shapes, by name.
      shards: the number of devices along the mesh axis; it divides a dimension, or none is divided.

    Example:
      >>> import jax, numpy as np
      >>> shape = {"layers.0.up.weight": jax.ShapeDtypeStruct((8, 4), np.float32)}
      >>> dimensions({"layers.*.up": "colwise"}, {k: [k] for k in shape}, shape, 2)
      {'layers.0.up.weight': 0}
    """
    rules = {
        re.compile(re.escape(k).replace(r"\*", r"\d+") + r"(\.(weight|bias))?"): v
        for k, v in plan.items()
    }
    divided = {}
    for name, names in paths.items():
        kind = next((v for p, v in rules.items() if any(map(p.fullmatch, names))), None)
        shape = shapes[name].shape
        if kind not in KINDS or not shape:
            continue
        is_vector = len(shape) == 1
        dimension = KINDS[kind] % len(shape)
        if (is_vector and KINDS[kind] == ROWS) or shape[dimension] % shards:
            continue  # the bias of a sum over devices is added once
        divided[name] = dimension
    return divided
