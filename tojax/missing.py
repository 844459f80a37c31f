"""Packages that are not installed, as the line that installs them; needs none itself."""

from __future__ import annotations

import re

from tojax.errors import MissingDependency

# The extra of pyproject.toml that brings a package.
EXTRAS = {
    "torch": "torch",
    **dict.fromkeys(("transformers", "huggingface_hub", "tokenizers", "tqdm"), "hf"),
    **dict.fromkeys(("optax", "orbax", "grain", "qwix"), "train"),
    **dict.fromkeys(("tensorflow", "keras"), "tensorflow"),
    **dict.fromkeys(("typer", "rich", "click"), "cli"),
    **dict.fromkeys(("jax2onnx", "onnx", "onnxruntime"), "onnx"),
    **{name: name for name in ("gguf", "flax", "ray")},
}
CORE = ("jax", "jaxlib", "jaxtyping", "numpy", "safetensors", "flatbuffers")
OF_CHECKPOINTS = ("run", "generate", "inspect", "finetune", "plan", "export")  # they need both


def missing(error: ImportError, verb: str = "") -> ImportError:
    """What to install, of an import that failed in a verb; other failures stay as they are.

    Example:
      >>> print(missing(ModuleNotFoundError("No module named 'optax'", name="optax"), "finetune"))
      tojax finetune needs the package optax, which is not installed
        where: No module named 'optax'
        why:   the extra tojax[train] brings it
        do:    pip install "tojax[train]"
    """
    named = error.name or next(iter(re.findall(r"No module named '([\w.]+)'", str(error))), "")
    package = named.partition(".")[0]
    if package not in EXTRAS and package not in CORE:
        return error
    extra = EXTRAS.get(package)
    if package == "torch" and verb in OF_CHECKPOINTS:
        extra = "hf"
    whole = f"tojax[{extra}]" if extra else "tojax"
    return MissingDependency(
        f"tojax {verb}".strip() + f" needs the package {package}, which is not installed",
        where=str(error).splitlines()[0] if str(error) else "",
        why=f"the extra {whole} brings it" if extra else "nothing runs without it",
        do=f'pip install "{whole}"',
    )
