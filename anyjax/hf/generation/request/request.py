"""A call of generate, prepared by transformers' own rules before anything runs."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NoReturn

import jax
import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import ModelOutput

from anyjax import trees
from anyjax.dtypes import fitting
from anyjax.errors import RightPadded, Unsupported, WrongArguments
from anyjax.hf.generation.request import private
from anyjax.hf.generation.request.checks import NUMPY
from anyjax.hf.loading.decide import quiet
from anyjax.warn_once import warn

# Arguments with an entry per position of the text.
ALIGNED = ("attention_mask", "position_ids", "decoder_attention_mask", "decoder_position_ids")
TOKENIZERS = ("return_tensors", "padding", "truncation", "add_special_tokens")
TYPES = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")
# Arguments of transformers' generate that are neither options nor the model's.
NEGATIVE = ("negative_prompt_ids", "negative_prompt_attention_mask")
UNCOMMON = ("logits_processor", "prefix_allowed_tokens_fn", *NEGATIVE)
# Other names of the key that tokens are drawn with.
KEYS = {"key", "prng_key", "random_key", "rng_key", "rngs", "seed", "generator", "random_state"}
# Arguments that are used once, with the prompt.
PROMPT_ONLY = frozenset(private.PROMPT_ONLY)


@dataclass
class Request:
    """A call of generate.

    Attributes:
      settings: every generation option, with the model's own defaults.
      ids: ``[batch, length]``, what the decoder starts from.
      given: further arguments of the model by name, as numpy arrays or Python values.
      encoder: the encoder's main input, (name, array), None for decoder-only models.
      source: the prompts, or the encoder's main input, before they are repeated.
      processors: transformers' logits processors, in order.
      criteria: transformers' stopping criteria of the call.
    """

    settings: GenerationConfig
    ids: np.ndarray
    model_inputs: dict[str, Any]
    encoder: tuple[str, np.ndarray] | None
    source: np.ndarray
    processors: list[Any]
    criteria: list[Any]


def build_request(module: PreTrainedModel, inputs: object, options: dict[str, Any]) -> Request:
    """Runs transformers' own preamble: options, special tokens, masks, positions, lengths.

    Args:
      module: the model; its weights are not touched.
      inputs: the ``input_ids`` of the call, or None.
      options: all keyword arguments, of generation and of the model.

    Raises:
      Unsupported: an option that neither generation nor the model knows.
      WrongArguments: values that transformers refuses.
    """
    for name in options.keys() - _forward_arguments(type(module).forward):
        if name in KEYS or _is_key(options[name]):
            _refuse_name(module, name, key=True)
    uncommon = {k: as_torch(options.pop(k)) for k in UNCOMMON if k in options}
    criteria = list(options.pop("stopping_criteria", None) or [])
    options = {k: as_torch(v) for k, v in options.items()}
    with quiet(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using the model-agnostic default")
        try:
            request = _run_preamble(module, as_torch(inputs), options, uncommon)
        except ValueError as error:
            text = " ".join(str(error).split())
            if unknown := re.search(r"not used by the model: \['(.*?)'", text):
                _refuse_name(module, unknown[1], error)
            raise WrongArguments(
                text[:300], do="see transformers' documentation of generate"
            ) from error

    request.criteria = criteria
    return request


def _is_key(value: Any) -> bool:
    return trees.is_array(value) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _refuse_name(
    module: PreTrainedModel, name: str, cause: Exception | None = None, key: bool = False
) -> NoReturn:
    """Raises Unsupported for an option of an unknown name."""
    option_names = {*GenerationConfig().to_dict(), *_forward_arguments(type(module).forward)}
    near = ["rng"] if key else difflib.get_close_matches(name, sorted(option_names), 2, 0.6)
    if name in TOKENIZERS:
        raise Unsupported(
            f"the option {name!r}",
            why="it is one of tokenizers",
            do=f"call generate(model, **inputs) with inputs = tokenizer(texts, {NUMPY})",
        ) from cause
    raise Unsupported(
        f"the option {name!r}",
        why="neither generation nor the model's forward knows it",
        do=f"did you mean {' or '.join(near)}?" if near else "leave it out, or correct its name",
    ) from cause


def _run_preamble(
    module: PreTrainedModel, inputs: torch.Tensor | None, options: dict, uncommon: dict
) -> Request:
    config = options.pop("generation_config", None)
    sources = (SimpleNamespace(**options), config, module.generation_config)
    unset = lambda name: all(getattr(x, name, None) is None for x in sources)
    defaults = {f"has_default_{k}": unset(k) for k in ("max_length", "min_length")}
    settings, kwargs = module._prepare_generation_config(config, **options)
    module._validate_model_kwargs(dict(kwargs))
    masked = kwargs.get("attention_mask") is not None
    inputs, name, kwargs = module._prepare_model_inputs(inputs, settings.bos_token_id, kwargs)
    private.prepare_special_tokens(module, settings, masked, len(inputs))
    times = max(settings.num_beams, settings.num_return_sequences)
    _refuse_repeated(kwargs, len(inputs), times)
    if module.config.is_encoder_decoder:
        encoder = name, inputs.repeat_interleave(times, 0).numpy()
        ids, kwargs = module._prepare_decoder_input_ids_for_generation(
            batch_size=len(inputs),
            model_input_name=name,
            model_kwargs=kwargs,
            decoder_start_token_id=settings._decoder_start_token_tensor,
            device="cpu",
        )
    else:
        encoder, ids = None, _decoder_only(module, inputs, name, settings, kwargs)
    ids, kwargs = _repeated(ids, kwargs, times)
    module._prepare_generated_length(
        generation_config=settings,
        model_input_name=name,
        input_ids_length=ids.shape[1],
        inputs_tensor=inputs,
        **defaults,
    )
    module._validate_generated_length(settings, ids.shape[1], defaults["has_default_max_length"])
    processors = module._get_logits_processor(
        generation_config=settings,
        input_ids_seq_length=ids.shape[1],
        encoder_input_ids=inputs,
        device="cpu",
        model_kwargs=kwargs,
        **uncommon,
    )
    model_inputs = {k: as_numpy(v) for k, v in kwargs.items() if v is not None and k != "use_cache"}
    return Request(settings, ids.numpy(), model_inputs, encoder, inputs.numpy(), processors, [])


def _decoder_only(
    module: PreTrainedModel,
    inputs: torch.Tensor,
    name: str,
    settings: GenerationConfig,
    kwargs: dict,
):
    """Returns the prompts; puts a mask (None if it hides nothing) and positions into ``kwargs``."""
    if name != "input_ids":
        raise Unsupported(
            f"generation from {name} alone",
            why="anyjax.generate continues token ids",
            do="give input_ids, with other inputs of the model by name",
        )
    takes = _forward_arguments(type(module).forward)
    if kwargs.get("attention_mask") is None and "attention_mask" in takes:
        mask = module._prepare_attention_mask_for_generation(inputs, settings, kwargs)
        kwargs["attention_mask"] = mask
    if kwargs.get("position_ids") is None and "position_ids" in takes:
        with restoring_attributes(module):
            kwargs["position_ids"] = module._prepare_position_ids_for_generation(inputs, kwargs)
    mask, ahead = kwargs.get("attention_mask"), sees_ahead(module)
    if mask is not None and mask.dim() == 2 and not mask[:, -1].all():
        warn(
            "a prompt ends in padding, and new tokens come after it: the text will be wrong. Make "
            'prompts with AutoTokenizer.from_pretrained(..., padding_side="left")',
            RightPadded,
        )
    if ahead and not settings.use_cache and "token_type_ids" in kwargs:
        raise Unsupported(
            "the option use_cache=False together with token_type_ids",
            why="new tokens have another type than the prompt's last one, which is repeated here",
            do="leave use_cache=False out",
        )
    # Without a mask and a cache, transformers takes positions for those of packed texts.
    if mask is not None and bool((mask == 1).all()) and settings.use_cache and not ahead:
        kwargs["attention_mask"] = None
    return inputs


def sees_ahead(module: PreTrainedModel) -> bool:
    """Returns whether tokens see later tokens of an unpadded prompt (PaliGemma)."""
    text = module.config.get_text_config(decoder=True)
    return getattr(text, "use_bidirectional_attention", None) in (True, "all")


@lru_cache
def _forward_arguments(forward: Callable) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def _refuse_repeated(kwargs: dict, batch: int, times: int) -> None:
    """Raises Unsupported where images would be repeated: which prompt they belong to is unknown."""
    for name in PROMPT_ONLY & {*kwargs}:
        value = kwargs[name]
        if times > 1 and isinstance(value, torch.Tensor) and len(value) != batch:
            raise Unsupported(
                f"several beams or answers with {name} of {len(value)} rows",
                why=f"there are {batch} prompts, and which row belongs to which is not known",
                do="generate one answer without beams",
            )


def _repeated(ids: torch.Tensor, kwargs: dict, times: int):
    """Repeats every row ``times`` times, for beams and several answers."""
    if times == 1:
        return ids, kwargs
    along = lambda k: 1 if k == "position_ids" and kwargs[k].ndim == 3 else 0
    repeat = lambda x, k: x.repeat_interleave(times, along(k)) if isinstance(x, torch.Tensor) else x
    kwargs = {
        k: jax.tree.map(partial(repeat, k=k), v) if isinstance(v, ModelOutput) else repeat(v, k)
        for k, v in kwargs.items()
    }
    return ids.repeat_interleave(times, 0), kwargs


@contextlib.contextmanager
def restoring_attributes(module: torch.nn.Module) -> Iterator[None]:
    """Restores the module's attributes afterwards: a call may leave positions of images there."""
    saved = [(m, dict(m.__dict__)) for m in module.modules()]
    try:
        yield
    finally:
        for child, attributes in saved:
            child.__dict__.clear()
            child.__dict__.update(attributes)


def as_torch(value: object) -> Any:
    """Returns an array of any framework as a tensor; integers are 64-bit."""
    if isinstance(value, ModelOutput):  # of an encoder that ran before
        return jax.tree.map(as_torch, trees.register(value))
    if not trees.is_array(value) or isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    tensor = torch.from_numpy(array.copy())
    return tensor.long() if array.dtype.kind in "iu" else tensor


def as_numpy(value: object) -> Any:
    """Returns a tensor as a numpy array; 64-bit integers become 32-bit, if they fit."""
    if isinstance(value, ModelOutput):
        return jax.tree.map(as_numpy, trees.register(value))
    if not isinstance(value, torch.Tensor):
        return value
    array = value.detach().cpu().numpy()
    return fitting(array).astype(np.int32) if array.dtype == np.int64 else array


# The settings that transformers' preparation of caches and encoders reads.
PREPARATION_SETTINGS = SimpleNamespace(
    use_cache=True,
    cache_implementation=None,
    cache_config=None,
    is_assistant=False,
    output_attentions=False,
    output_hidden_states=False,
    return_dict_in_generate=False,
)
