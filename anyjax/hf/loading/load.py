"""Checkpoints as Models, through transformers' own classes and its own loader."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
from typing import TYPE_CHECKING, Literal, Never

from anyjax.errors import WrongArguments
from anyjax.hf.loading.decide import decide
from anyjax.hf.loading.find.adapter import find_with_adapter
from anyjax.hf.loading.module.build import build_module
from anyjax.hf.loading.module.deferred import Reader
from anyjax.hf.loading.place import place_model
from anyjax.hf.loading.source import source_of
from anyjax.model import Model
from anyjax.torch.core.precision import Option
from anyjax.torch.engine.callback import check_on_missing

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from anyjax.parallel.plans.plans import Plan


def from_pretrained(
    source: str | os.PathLike[str],
    dtype: object = None,
    mesh: Mesh | None = None,
    plan: Plan | None = None,
    roll: bool = False,
    task: str | None = None,
    *,
    adapter: str | os.PathLike[str] | None = None,
    gguf_file: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    on_missing: Literal["error", "callback"] = "error",
    precision: Option = "torch",
    dequantize: bool | None = None,
    **unknown: Never,
) -> Model:
    """Loads a Hugging Face checkpoint as a Model, in evaluation mode.

    Weights go from the file to their devices one by one; ``model.source.module`` is transformers'
    module without memory for them, and ``model.to_torch()`` makes one that has them.

    Args:
      source: a folder with config.json and safetensors files, a GGUF file, or a hub id
        (owner/name), which is downloaded.
      dtype: dtype of the floating-point weights, such as "bfloat16"; the checkpoint's own by
        default, float32 for GGUF.
      mesh: the mesh to place all arrays on; JAX's default device without one.
      plan: "tp", "fsdp", "sequence", some of them joined by "+", or rules {regular expression:
        PartitionSpec}, as for ``anyjax.parallel.shard``. A device reads the bytes of its own part
        only, but where transformers merges or reorders weights.
      roll: repeated layers as one loop over stacked weights, see ``anyjax.transforms.roll``.
      task: which head to use, as in transformers' ``AutoModelFor...`` ("CausalLM",
        "SequenceClassification", or "Base" for the model without a head); the class that the
        checkpoint names by default.
      adapter: folder or hub id of a PEFT adapter (LoRA and the like) to put on top. Then ``params``
        holds the adapter's weights alone, ready to be trained, and ``state`` all others. The folder
        of an adapter may also be the source itself. Modules that the adapter saved whole are
        params, too, and so is the head of one for classes, which ``task`` need not name.
      gguf_file: name of a GGUF file in the folder; its blocks of Q8_0, Q5_0, Q4_0 and
        Q6_K stay packed (see ``dequantize``), others are opened.
      allow_pickle: also load pickled weights, which can run any code that their author put in.
      trust_remote_code: also run model code that comes with the checkpoint.
      dequantize: whether quantized weights become floats of the dtype. By default they stay as
        they are, in ``state`` as after ``anyjax.transforms.quantize``, but for those in reordered
        groups or blocks across rows, and nf4 and fp4 on a CPU, where decoding would be slower.
        Activations are never quantized. Below an adapter and with ``roll`` all become floats.
      on_missing: what happens at operators without a lowering, see ``from_torch``.
      precision: of products in float32, see ``from_torch``.

    Returns:
      A Model whose params have transformers' names; tied weights are one entry.

    Raises:
      BadCheckpoint: the folder is no checkpoint, or weights are missing, extra, misshaped,
        truncated or pickled: all of them in one error.
      HubUnreachable: the id is not here and the hub does not answer.
      Unsupported: the weights are quantized in a way that is not read, the model brings code
        that is not trusted, or the adapter is a prompt.
      WrongArguments: an argument is not known, there is no such plan, it does not fit the arrays,
        there is no mesh, or the model does not tell which call shall be looked at for ``roll``.

    Example:
      >>> import numpy as np
      >>> model = anyjax.from_pretrained("examples/tiny-llama")
      >>> model(np.array([[1, 2, 3]])).logits.shape[:2]
      (1, 3)
    """
    if not isinstance(source, (str, os.PathLike)):
        raise WrongArguments(
            f"from_pretrained takes a folder or a hub id, not a {type(source).__name__}",
            do="give a module to anyjax.from_torch, and other models to anyjax.convert",
        )
    if unknown:
        raise _unknown([*unknown])
    check_on_missing(on_missing)
    options = {"allow_pickle": allow_pickle, "gguf_file": gguf_file}
    checkpoint, adapter_files = find_with_adapter(source, adapter, **options)
    decision = decide(checkpoint, task, dtype, trust_remote_code, adapter_files)
    if roll or adapter_files is not None:
        dequantize = True
    with contextlib.closing(Reader()) as reader:
        module = build_module(decision, reader)
        torch_source = source_of(module, checkpoint.folder, on_missing, precision)
        model = place_model(torch_source, mesh, plan, dequantize)
    if not roll:
        return model
    from anyjax.transforms._roll import program_of, rolled

    # empties both, so that each array goes away when it is in its stack
    return rolled(model, model.params, model.state, program_of(model))


# Arguments of transformers and their counterparts here.
REPLACEMENTS = {
    "torch_dtype": "dtype, as dtype='bfloat16'",
    "device_map": "mesh and plan: mesh=jax.make_mesh((8,), ('model',)), plan='tp'",
    "quantization_config": "anyjax.transforms.quantize(model, 'int8') on what is loaded",
    "load_in_8bit": "anyjax.transforms.quantize(model, 'int8') on what is loaded",
    "load_in_4bit": "anyjax.transforms.quantize(model, 'nf4') on what is loaded",
}


def _unknown(names: list[str]) -> WrongArguments:
    parameters = [x for x in inspect.signature(from_pretrained).parameters if x != "unknown"]
    near = {k: difflib.get_close_matches(k, parameters, 1, 0.6) for k in names}
    replacements = [REPLACEMENTS.get(k) or (near[k][0] if near[k] else "") for k in names]
    hints = [f"{hint} instead of {k}" for k, hint in zip(names, replacements) if hint]
    return WrongArguments(
        f"from_pretrained takes no {', '.join(names)}",
        why=f"it takes {', '.join(parameters)}",
        do=f"write {'; '.join(hints)}" if hints else "leave it out",
    )
