"""A checkpoint's config as a call to estimate: shapes alone, without weights or arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from anyjax import transforms
from anyjax.errors import BadCheckpoint, Unsupported, WrongArguments, WrongValue
from anyjax.hf.generation.job.public_cache import Cache
from anyjax.hf.loading.decide import decide
from anyjax.hf.loading.find import other_formats
from anyjax.hf.loading.find.checkpoint import find_checkpoint
from anyjax.hf.loading.source import source_of
from anyjax.model import Model
from anyjax.parallel.estimation.call import Call, Role, Traced, forward_call, trace_call, train_call
from anyjax.typing import PyTree


def _optimizer(name: str, **options: float) -> Any:
    """Returns one of optax's optimizers; only a training step imports it."""
    import optax

    return getattr(optax, name)(1e-4, **options)


OPTIMIZERS = {
    "adamw": lambda: _optimizer("adamw"),
    "adafactor": lambda: _optimizer("adafactor"),
    "sgd": lambda: _optimizer("sgd"),
    "momentum": lambda: _optimizer("sgd", momentum=0.9),
}


def traced_call(
    source: str,
    what: str = "forward",
    batch: int = 1,
    length: int = 2048,
    *,
    dtype: object = None,
    optimizer: str = "adamw",
    remat: bool = False,
    quantize: str | None = None,
    task: str | None = None,
    roll: bool = False,
) -> Traced:
    """Traces a call of the model in a folder or on the hub, for ``parallel.estimate``.

    Args:
      source: a folder with a config.json, or a hub id; weights are not read.
      what: "forward"; "train", a step of ``anyjax.train.make_step`` with the next tokens' loss;
        "prefill", prompts into a cache; "decode", one token more with a cache of that length.
      batch, length: rows, and tokens of each.
      dtype: of the weights; the config's own by default.
      optimizer: adamw, adafactor, sgd or momentum.
      remat: layers are computed again for the gradient.
      quantize: weights held as "int8", "fp8", "int4" or "nf4", see ``anyjax.transforms.quantize``.
      task: as for ``anyjax.from_pretrained``.
      roll: layers as one loop, see ``anyjax.transforms.roll``: compilers take them once.

    Raises:
      BadCheckpoint: there is no config.
      WrongArguments: more tokens than the model has positions.
      WrongValue: no such optimizer, dtype or kind of numbers.
      Unsupported: the model reads no text.
    """
    if optimizer not in OPTIMIZERS:
        raise WrongValue(
            f"optimizer={optimizer!r}",
            where="--optimizer",
            why="its state is counted by its name",
            do=f"take one of {', '.join(OPTIMIZERS)}",
        )
    model: Any = abstract_model(source, dtype, task)
    checked_length(model, length)
    notes: tuple[str, ...] = ()
    if quantize is not None:
        model = jax.eval_shape(lambda m: transforms.quantize(m, quantize), model)
    elif method := _quantization_method(source):
        notes = (f"weights that are small in the checkpoint ({method}) are counted as floats: "
                 "--quantize counts small ones",)  # fmt: skip
    ids = jax.ShapeDtypeStruct((batch, length), np.int32)
    if roll:
        model = jax.eval_shape(lambda m: transforms.roll(m, input_ids=ids, use_cache=False), model)
    if what == "train":
        call = _training_step(model, batch, length, optimizer, remat)
    elif what == "forward":
        call = _forward(model, ids)
    else:
        call = _prefill(model, ids, length)
        if what == "decode":
            call = _decode(model, trace_call(call), batch)
    return trace_call(replace(call, notes=notes))


def _quantization_method(source: str) -> str:
    """Returns how the checkpoint's weights are quantized; "" where they are not."""
    checkpoint = find_checkpoint(source, need_weights=False)
    return "GGUF" if checkpoint.gguf else checkpoint.quantization.get("quant_method", "")


def abstract_model(source: str, dtype: Any = None, task: str | None = None) -> Model:
    """Returns the model of a config, with shapes and dtypes for arrays.

    Raises:
      BadCheckpoint: the folder has no config.json.
    """
    folder = Path(source)
    if folder.is_dir() and not (folder / "config.json").exists():
        raise other_formats.error_of(folder) or BadCheckpoint(
            f"{folder.name} has no config.json",
            where=str(folder),
            why="the shapes of a model's weights follow from its config",
            do="save one there: transformers.LlamaConfig(...).save_pretrained(FOLDER)",
        )
    checkpoint = find_checkpoint(source, need_weights=False)
    if task is None and not checkpoint.config.get("architectures"):
        task = "CausalLM"
    decision = decide(checkpoint, task, dtype)
    kind = decision.dtype if dtype is not None else getattr(decision.config, "dtype", None)
    module = decision.skeleton(**{"dtype": kind} if isinstance(kind, torch.dtype) else {})
    torch_source = source_of(module, checkpoint.folder)
    params, state = (dict[str, Any](x) for x in torch_source.slots.abstract())
    return Model(params, state, torch_source)


def checked_length(model: Model, length: int) -> None:
    """Raises WrongArguments for more tokens than the model has positions."""
    config: Any = model.source.module.config
    config = getattr(config, "text_config", None) or config
    most = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if isinstance(most, int) and 0 < most < length:  # XLNet says -1: it has no limit
        raise WrongArguments(
            f"{length} tokens are beyond the model's {most} positions",
            where=f"--length {length}, {type(config).__name__}.max_position_embeddings",
            why="positions behind the last one have no meaning in this model",
            do=f"take --length {most} or less, or raise the number in config.json with the scaling "
            "of its rotary embedding",
        )


def _forward(model: Model, ids: jax.ShapeDtypeStruct) -> Call:
    if model.source.module.main_input_name != "input_ids":
        raise Unsupported(
            f"a plan of {model.source.name}",
            why=f"its input is {model.source.module.main_input_name}, and batch and length are "
            "sizes of text",
            do="use anyjax.parallel.estimate(model, chips, plan, *args) with arrays of your own",
        )
    no_cache = {"use_cache": False} if "use_cache" in model.source.signature.parameters else {}
    return forward_call(model, (), {"input_ids": ids} | no_cache)


def next_token_loss(model: Model, batch: PyTree) -> jax.Array:
    """Returns the mean cross entropy of the next tokens."""
    import optax

    logits = model(**batch, use_cache=False).logits[:, :-1]
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits, batch["input_ids"][:, 1:]).mean()


def _training_step(model: Model, batch: int, length: int, optimizer: str, remat: bool) -> Call:
    from anyjax.train import TrainState, make_step

    tx = OPTIMIZERS[optimizer]()
    state = jax.eval_shape(lambda m: TrainState.create(m, tx), model.train())
    step = make_step(next_token_loss, tx, remat=remat)
    ids = {"input_ids": jax.ShapeDtypeStruct((batch, length), np.int32)}
    return replace(train_call(step, state, ids), example=((), ids | {"use_cache": False}))


def _prefill(model: Model, ids: jax.ShapeDtypeStruct, room: int) -> Call:
    """Returns the call that reads prompts into an empty cache: (last logits, cache)."""

    def prefill(params, state, ids):
        logits, cache = Cache(room, model.source, state).prefill(params, ids)
        return logits, _growing_arrays(cache)

    def role(path: tuple) -> Role:
        kind = ("params", "state", "inputs")[path[0].idx]
        return Role(kind, path[1].key if kind != "inputs" else "")

    arguments = (model.params, model.state, ids)
    example = (), {"input_ids": ids}
    return Call("prefill", model, prefill, arguments, role, tokens=ids.size, example=example)


def _growing_arrays(cache: Cache) -> tuple:
    return cache.at, cache.state, cache.stays, cache.along


def _decode(model: Model, prefilled: Traced, batch: int) -> Call:
    """Returns the call that reads one token more for each row, with the prefill's cache."""
    room = prefilled.call.arguments[2].shape[1]
    token = jax.ShapeDtypeStruct((batch,), np.int32)

    def decode(params, state, token, cache_arrays):
        at, *rest = cache_arrays
        cache = Cache(room, model.source, state, at, *rest)
        logits, cache = cache.step(params, token)
        return logits, _growing_arrays(cache)

    def role(path: tuple) -> Role:
        kind = ("params", "state", "inputs", "cache")[path[0].idx]
        return Role(kind, path[1].key if kind in ("params", "state") else "")

    arguments = (model.params, model.state, token, prefilled.shape[1])
    return Call(
        "decode", model, decode, arguments, role, {3: 1}, batch,
        example=prefilled.call.example, source=prefilled,
    )  # fmt: skip
