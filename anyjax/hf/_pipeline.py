"""transformers' pipelines with the model in JAX; they prepare inputs and outputs as ever."""

from __future__ import annotations

import os
import warnings
from pkgutil import resolve_name
from typing import Any

import jax
import transformers
from transformers.pipelines import PIPELINE_REGISTRY

from anyjax.errors import MissingRng, NewWeights, Unsupported
from anyjax.hf.generation._generate import generate
from anyjax.hf.generation.job.custom_generate import Standin, standin, to_torch
from anyjax.hf.loading.find.checkpoint import find_checkpoint
from anyjax.hf.loading.load import from_pretrained
from anyjax.model import Model


def pipeline(
    task: str,
    source: str | os.PathLike[str] | Model,
    *,
    rng: jax.Array | None = None,
    **options: Any,
) -> transformers.Pipeline:
    """Makes a ``transformers.pipeline`` with the model in JAX, one program per shape of the input.

    Args:
      task: "text-generation", "fill-mask", "text-classification", "image-classification",
        "feature-extraction", "automatic-speech-recognition" or another of transformers' tasks.
      source: a checkpoint folder or hub id with the head that the task needs, or a Model from
        ``from_pretrained``; from ``from_torch`` it needs ``tokenizer=`` and the like among the
        options.
      rng: the key that generation with sampling draws from, anew for every call.
      **options: as ``transformers.pipeline`` takes them, such as ``tokenizer``, ``batch_size``, and
        generation options.

    Returns:
      The pipeline: call it with texts, images or sounds, as its documentation says
      (https://huggingface.co/docs/transformers/main_classes/pipelines).

    Raises:
      Unsupported: there is no such task, or the checkpoint has another head than it needs.
      BadCheckpoint, HubUnreachable: see ``from_pretrained``.

    Example:
      >>> from anyjax.hf import pipeline
      >>> write = pipeline("text-generation", "examples/tiny-llama", do_sample=False)
      >>> write("def main(", max_new_tokens=4)[0]["generated_text"].startswith("def main(")
      True
    """
    model = source if isinstance(source, Model) else _load_for_task(task, source)
    folder = getattr(model.source, "folder", None)
    if folder is not None:
        processors = ("tokenizer", "image_processor", "video_processor")
        # by default transformers would ask at the terminal whether a processor's code may run
        options = {"trust_remote_code": False} | dict.fromkeys(processors, str(folder)) | options
        needed = resolve_name(_task_entry(task)["impl"])._load_feature_extractor
        if needed and "feature_extractor" not in options:
            # By name, transformers would look for a decoder beside the model's name, too.
            extractor = transformers.AutoFeatureExtractor.from_pretrained(
                folder, trust_remote_code=options["trust_remote_code"]
            )
            options["feature_extractor"] = extractor
    return transformers.pipeline(task, model=served(model, rng), device="cpu", **options)


def _load_for_task(task: str, source) -> Model:
    checkpoint = find_checkpoint(source)
    architectures = checkpoint.config.get("architectures") or ()
    task_classes = _classes(task)
    if task_classes is None:
        with warnings.catch_warnings():  # a pooler may be new: the task reads hidden states alone
            warnings.simplefilter("ignore", NewWeights)
            return from_pretrained(source, task="Base")
    if not set(architectures) & task_classes:
        raise Unsupported(
            f"{task} with a checkpoint of {', '.join(architectures) or 'no named class'}",
            where=str(checkpoint.folder),
            why="it has no weights for the head that this task needs",
            do="give a checkpoint that was trained for the task; it may be one of "
            + ", ".join(sorted(task_classes)[:3]),
        )
    return from_pretrained(source)


def _task_entry(task: str) -> dict[str, Any]:
    try:
        return PIPELINE_REGISTRY.check_task(task)[1]
    except KeyError as error:
        raise Unsupported(
            f"the task {task!r}",
            where=f"transformers {transformers.__version__}",
            why="it has no pipeline of this name",
            do=f"use one of {', '.join(PIPELINE_REGISTRY.get_supported_tasks())}",
        ) from error


def _classes(task: str) -> set[str] | None:
    """Returns the names of a task's classes; None where any model without a head serves it."""
    entry = _task_entry(task)
    if transformers.AutoModel in entry["pt"]:
        return None
    class_names: set[str] = set()
    for auto in entry["pt"]:
        for names in auto._model_mapping._model_mapping.values():
            class_names |= {names} if isinstance(names, str) else set(names)
    return class_names


def served(model: Model, rng: jax.Array | None = None) -> transformers.PreTrainedModel:
    """Returns a stand-in for transformers' pipelines: torch tensors in and out, JAX inside."""
    return standin(model, Served, rng=rng)


class Served(Standin):
    """A stand-in that draws with keys of its own."""

    rng: jax.Array | None
    generation_config: Any
    main_input_name: str

    def generate(self, inputs=None, *, generation_config=None, **kwargs):
        """Runs ``anyjax.generate`` with the options of a generation config."""
        kwargs.pop("assistant_tokenizer", None)
        settings = generation_config or self.generation_config
        key = None
        if kwargs.get("do_sample", settings.do_sample):
            key = self._key()
        inputs = kwargs.pop(self.main_input_name) if inputs is None else inputs
        options = kwargs | {"generation_config": generation_config}
        return to_torch(generate(self.converted, inputs, rng=key, **options))

    def _key(self) -> jax.Array:
        if self.rng is None:
            raise MissingRng(
                "the pipeline samples and there is no rng",
                why="a JAX function gets its randomness as an argument",
                do="pass rng=jax.random.key(0) to pipeline(...), or do_sample=False",
            )
        self.rng, key = jax.random.split(self.rng)
        return key
