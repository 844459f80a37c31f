"""The README.md of a checkpoint: a model card with a section that says how JAX uses the model.

Source: https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData
from transformers import PreTrainedModel

from anyjax.errors import Unsupported
from anyjax.hf.loading.inputs import example

TAGS = ("jax", "anyjax")
FILE = "README.md"
SECTION = "## Use in JAX\n"
TEXT = """\
anyjax makes a pure JAX function and a pytree of params of this checkpoint.

```python
import anyjax
import numpy as np

model = anyjax.from_pretrained("{name}")
{call}
```

`model.apply(model.params, ...)` is what `jax.jit`, `grad` and `vmap` take;
`anyjax.verify(model, ...)` compares every module with PyTorch.
"""


def write(module: PreTrainedModel, folder: Path, name: str, origin: Path | None) -> None:
    """Writes the card of a checkpoint: that of ``origin`` with a new section, where there is one.

    Args:
      module: the model, with or without weights.
      folder: of the checkpoint.
      name: what ``anyjax.from_pretrained`` is to take: a folder or a hub id.
      origin: the folder whose card goes on.
    """
    section = SECTION + "\n" + TEXT.format(name=name, call=call(module))
    if origin is not None and (origin / FILE).is_file():
        card = ModelCard.load(origin / FILE, ignore_metadata_errors=True)
        first, _, rest = card.text.partition(SECTION)
        _, heading, rest = rest.partition("\n## ")  # what comes after an earlier section
        card.text = f"{first.rstrip()}\n\n{section}{heading}{rest}"
    else:
        data = ModelCardData(library_name="transformers")
        title = f"# {Path(name).name}\n\nA `{type(module).__name__}` of transformers."
        card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{title}\n\n{section}")
    card.data.tags = [*dict.fromkeys((*(card.data.tags or ()), *TAGS))]
    card.save(folder / FILE)


def call(module: PreTrainedModel) -> str:
    """Returns lines that call the model on arrays of shapes that it takes."""
    try:
        inputs = example(module)
    except Unsupported:
        return "print(model)"
    arrays = ", ".join(f"{k}=np.ones({x.shape}, np.{x.dtype})" for k, x in inputs.items())
    lines = f"inputs = dict({arrays})\nout = model(**inputs)"
    if module.can_generate() and module.main_input_name == "input_ids":
        lines += '\ntokens = model.generate(inputs["input_ids"], max_new_tokens=8)'
    return lines
