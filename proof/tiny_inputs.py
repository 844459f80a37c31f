"""Inputs that the forward of a tiny model takes: tried on torch, the likeliest first."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from proof.tiny_models import NoTinyModel, main_class, models, parts

BATCH, LENGTH = 2, 16
MOST_SHAPES = 24  # that are tried of one set of arguments
GRID = [[1, 4, 4]] * BATCH  # images of 4 x 4 patches

Inputs = dict[str, object]


@dataclass
class Tiny:
    """A tiny model with inputs and what torch computes of them."""

    name: str
    model: PreTrainedModel
    inputs: Inputs
    outputs: list[torch.Tensor]
    random: frozenset[int]  # places of outputs that differ between two calls of torch


def tiny(model_type: str, seconds: float = 40) -> Tiny:
    """Returns a tiny model of a type, with inputs.

    Raises:
      NoTinyModel: there is none, or torch takes none of the inputs in this time.
    """
    cls, start = main_class(model_type), time.monotonic()
    failure: Exception | None = None
    for model in models(cls):
        for inputs in candidates(model):
            try:
                return Tiny(model_type, model, inputs, *_twice(model, inputs))
            except Exception as error:
                failure = failure or error
            if time.monotonic() - start > seconds:
                break
    raise NoTinyModel("torch takes none of the inputs") from failure


def _twice(model: PreTrainedModel, inputs: Inputs) -> tuple[list[torch.Tensor], frozenset[int]]:
    """Returns the outputs of torch, and the places of those that are random."""
    outputs, others = (call(model, inputs, seed) for seed in (0, 1))
    if not outputs:
        raise ValueError("no output has floats")
    if any(x.isnan().any() for x in outputs):
        raise ValueError("an output of torch has NaN")
    equal = lambda x, y: x.shape == y.shape and torch.allclose(x, y, 1e-4, 1e-5, equal_nan=True)
    random = (i for i, pair in enumerate(zip(outputs, others)) if not equal(*pair))
    return outputs, frozenset(random)


def call(model: torch.nn.Module, inputs: Inputs, seed: int = 0) -> list[torch.Tensor]:
    """Returns the outputs of torch that are floats."""
    torch.manual_seed(seed)
    with torch.no_grad():
        leaves = tree_leaves(model(**copy.deepcopy(inputs)))
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def candidates(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yields sets of inputs for a model's forward."""
    arguments = Arguments(model)
    sets = [arguments.of_image_and_text(), *map(arguments.product, arguments.groups())]
    seen = set()
    for inputs in itertools.chain(*sets, *arguments.unusual()):
        key = repr({k: getattr(v, "shape", v) for k, v in inputs.items()})
        if key not in seen:
            seen.add(key)
            yield inputs | arguments.static


class Arguments:
    """What is drawn for each argument of a model's forward, by the sizes in its config."""

    def __init__(self, model: PreTrainedModel):
        self.model, self.config = model, model.config
        signature = inspect.signature(model.forward).parameters
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        self.names = {k: p for k, p in signature.items() if p.kind not in kinds}
        self.required = [k for k, p in self.names.items() if p.default is p.empty]
        self.generator = torch.Generator().manual_seed(2)
        self.static: Inputs = {"use_cache": False} if "use_cache" in self.names else {}
        if "interpolate_pos_encoding" in self.required:
            self.static["interpolate_pos_encoding"] = True
        sizes = (self.first("vocab_size", default=100), self.first("image_token_id", default=100))
        smallest = min(x for size in sizes for x in (size if isinstance(size, list) else [size]))
        self.vocabulary = max(4, min(smallest or 100, 100))
        self.series = self.number("input_size", "num_input_channels", default=1)
        lags = self.first("lags_sequence", default=[0]) or [0]
        self.past = self.number("context_length", "prior_length", default=32)
        self.past += max(lags) if isinstance(lags, list) else 0
        self.future = self.number("prediction_length", default=8)
        self.shapes, self.drawn = self._shapes(), self._drawn()

    def first(self, *names: str, default: object) -> object:
        """Returns the first of these numbers or lists that the config or a part of it has."""
        for config, name in itertools.product(parts(self.config), names):
            value = getattr(config, name, None)
            if isinstance(value, (int, list, tuple)) and not isinstance(value, bool):
                return value if isinstance(value, int) else list(value)
        return default

    def number(self, *names: str, default: int, place: int = 0) -> int:
        """Returns the same as one number, of a list the item at this place."""
        value = self.first(*names, default=default)
        if isinstance(value, list):
            value = value[place] if value and isinstance(value[place], int) else default
        return value or default

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def tokens(self, length: int = LENGTH, *more: int) -> torch.Tensor:
        """Returns tokens that are no special ones; of a classifier the last one ends the text."""
        shape = (BATCH, length, *more)
        low, high = min(5, self.vocabulary - 2), max(self.vocabulary - 2, 2)
        ids = torch.randint(low, high, shape, generator=self.generator)
        end = getattr(self.config, "eos_token_id", None)
        if isinstance(end, int) and end >= 0 and "Classification" in type(self.model).__name__:
            ids[:, -1] = end
        return ids

    def mask(self) -> torch.Tensor:
        """Returns a mask with padding: transformers drops a mask of ones alone."""
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        mask[1, -3:] = 0
        return mask

    def _shapes(self) -> dict[str, list[tuple[int, ...]]]:
        """Returns the shapes of float arguments, the likeliest first."""
        channels = self.number(
            "num_channels", "in_channels", "in_chans", "num_input_channels", default=3
        )
        size = self.first("image_size", "img_size", "input_size", default=32)
        size = tuple(size[:2]) if isinstance(size, list) and len(size) > 1 else (size, size)
        size = size if all(isinstance(x, int) for x in size) else (32, 32)
        frames = self.number("num_frames", "frames_per_clip", default=4)
        patch = self.number("patch_size", default=8)
        names = ("num_mel_bins", "input_feat_per_channel", "input_dim", "feature_size", "n_mels")
        mel = self.number(*names, "input_feat_size", default=80)
        source = self.number("max_source_positions", "max_length", default=64)
        width = self.number("hidden_size", "d_model", default=64, place=-1)
        one = (self.series,) if self.series > 1 else ()
        images = [(channels, *size), (channels, 64, 64), (channels, 224, 224)]
        images += [(frames, channels, *size), (1, channels, *size), (1, 1, channels, *size)]
        images += [(channels, frames, *size), (2, channels, *size), (3, 32, 32), (1, *size)]
        images += [(LENGTH, channels * patch**2), (3, 128, 128), (3, 256, 256)]
        features = [(mel, 2 * source), (64, mel), (mel, 64), (mel, 3000), (1, 64, mel)]
        features += [(1, 1001, 64), (64, 80), (64, 160), (80, 128), (128, 128), (64, width)]
        values = [(4000,), (1, 4000), (1024, 128), (64, mel), (2, 4000), (16000,), (1, 2, 4000)]
        shapes = {"pixel_values": images, "pixel_values_videos": [images[3], images[6]]}
        shapes |= dict.fromkeys(("images", "image"), images[:2])
        shapes |= {"input_features": features, "input_values": values}
        shapes |= {"audio_values": values[:2], "audio": values[:1], "speech_features": [(32, mel)]}
        shapes |= {
            "spectrogram": [(32, mel), (32, 80)],
            "decoder_input_values": [(8, mel), (8, 80)],
        }
        shapes |= {"past_values": [(self.past, *one), (self.past, 7), (self.past, 1)]}
        times = max(self.number("num_time_features", default=1), 1)
        shapes |= {"past_time_features": [(self.past, times)], "input_modal": [(3, 32, 32)]}
        shapes |= {"future_time_features": [(self.future, times)], "rewards": [(LENGTH, 1)]}
        shapes |= {"future_values": [(self.future, *one)], "returns_to_go": [(LENGTH, 1)]}
        embedded = ("inputs_embeds", "hidden_states", "encoder_hidden_states", "image_embeds")
        shapes |= {k: [(LENGTH, width)] for k in embedded} | {"query_embeds": [(8, width)]}
        shapes |= {"visual_feats": [(4, self.number("visual_feat_dim", default=64))]}
        shapes |= {"visual_pos": [(4, 4)], "pixel_features": [(49, 2048)], "latents": [(4, 8, 8)]}
        shapes |= {"inputs": [(LENGTH, 256)]}
        shapes |= dict.fromkeys(("prompt_pixel_values", "prompt_masks"), images[:1])
        shapes |= {"states": [(LENGTH, self.number("state_dim", default=1))]}
        shapes |= {"actions": [(LENGTH, self.number("act_dim", "action_dim", default=1))]}
        return {k: [(BATCH, *shape) for shape in v] for k, v in shapes.items()}

    def _drawn(self) -> dict:
        """Returns functions that make the arguments that are no arrays of random floats."""
        one = (self.series,) if self.series > 1 else ()
        ones = lambda *shape: torch.ones(BATCH, *shape, dtype=torch.long)
        positions = lambda: torch.arange(LENGTH).repeat(BATCH, 1)
        box = lambda: torch.stack([ones(LENGTH), ones(LENGTH), *[9 * ones(LENGTH)] * 2], -1)
        points = lambda: 30 * torch.rand(BATCH, 1, 1, 2, generator=self.generator)
        drawn = dict.fromkeys(("input_ids", "qformer_input_ids", "text"), self.tokens)
        drawn |= dict.fromkeys(
            ("decoder_input_ids", "codes", "task_inputs"), lambda: self.tokens(8)
        )
        drawn |= dict.fromkeys(("position_ids", "timesteps"), positions)
        drawn |= {"attention_mask": self.mask, "token_type_ids": lambda: 0 * ones(LENGTH)}
        drawn |= {"past_observed_mask": lambda: torch.ones(BATCH, self.past, *one)}
        drawn |= dict.fromkeys(("static_categorical_features", "freq"), lambda: 0 * ones(1))
        drawn |= dict.fromkeys(("image_grid_thw", "grid_thw"), lambda: torch.tensor(GRID))
        drawn |= dict.fromkeys(("xpath_tags_seq", "xpath_subs_seq"), lambda: ones(LENGTH, 50))
        drawn |= {"bbox": box, "input_points": points, "entity_ids": lambda: ones(2)}
        drawn |= {
            "entity_position_ids": lambda: torch.arange(4).reshape(1, 2, 2).repeat(BATCH, 1, 1)
        }
        drawn |= {"bool_masked_pos": lambda: torch.zeros(BATCH, 16, dtype=torch.bool)}
        drawn |= {"pixel_attention_mask": lambda: ones(LENGTH), "padding_mask": lambda: ones(4000)}
        drawn |= {"spatial_shapes": lambda: torch.tensor([[4, 4]] * BATCH)}
        sizes = lambda: torch.tensor([[32, 32]] * BATCH)
        return drawn | dict.fromkeys(("original_sizes", "image_sizes"), sizes)

    def product(self, names: Iterable[str]) -> Iterator[Inputs]:
        """Yields inputs for these arguments, with each shape that they may have."""
        names = [k for k in dict.fromkeys(names) if k in self.names and k not in self.static]
        if not names or any(k not in self.drawn and k not in self.shapes for k in names):
            return
        shapes = itertools.product(*(self.shapes.get(k, [None]) for k in names))
        for shape in itertools.islice(shapes, MOST_SHAPES):
            make = lambda k, s: self.drawn[k]() if s is None else self.normal(*s)
            yield {k: make(k, s) for k, s in zip(names, shape)}

    def groups(self) -> Iterator[list[str]]:
        """Yields sets of argument names, the likeliest first."""
        main = self.model.main_input_name
        base = [*self.required, *([main] if main in self.names else [])]
        text, image = ["input_ids", "attention_mask"], ["pixel_values"]
        decoder = ["decoder_input_ids"]
        extra = ["past_time_features", "future_time_features", "past_observed_mask", "bbox"]
        extra += ["decoder_input_values"]
        if "returns_to_go" in self.names:
            yield ["states", "actions", "rewards", "returns_to_go", "timesteps", "attention_mask"]
        if main != "input_ids":
            yield from (base + decoder, base + extra + decoder)
        yield from (base + text + decoder + image + extra, base + text + decoder + extra)
        yield from (base + decoder, base + text + decoder, base, base + extra, image, text)
        yield from (text + image, [*text, "input_features"], [*text, *image, "qformer_input_ids"])
        yield from (["input_values"], ["input_features"], ["inputs_embeds"])

    def unusual(self) -> Iterator[list[Inputs]]:
        """Yields lists of inputs of few models: codes of sound, patches in rows, masked sound."""
        if "input_ids" in self.names:
            yield [{"input_ids": self.tokens(LENGTH, self.number("num_codebooks", default=4))}]
        for pixels in ("pixel_values", "hidden_states"):
            for grid in {"image_grid_thw", "grid_thw"} & {*self.names}:
                if pixels in self.names:
                    yield [{pixels: self.normal(*self.rows()), grid: torch.tensor(GRID)}]
        masks = {"input_features_mask", "feature_attention_mask", "audio_mel_mask"} & {*self.names}
        for name in {"input_features", "audio_mel"} & {*self.names}:
            mel = self.number("num_mel_bins", "feature_size", "n_mels", default=80)
            for mask, shape in itertools.product(
                masks, ((64, mel), (mel, 64), (64, 80), (64, 128))
            ):
                ones = torch.ones(BATCH, 64, dtype=torch.long)
                yield [{name: self.normal(BATCH, *shape), mask: ones}]

    def rows(self) -> tuple[int, int]:
        """Returns the shape of images as rows of patches, as Qwen's vision models take them."""
        vision = getattr(self.config, "vision_config", self.config)
        channels = next(
            (
                c
                for k in ("in_channels", "in_chans", "num_channels")
                if (c := getattr(vision, k, 0))
            ),
            3,
        )
        patch = getattr(vision, "patch_size", 8)
        patch = patch if isinstance(patch, int) else 8
        return 32, channels * (getattr(vision, "temporal_patch_size", 1) or 1) * patch**2

    def of_image_and_text(self) -> Iterator[Inputs]:
        """Yields inputs with as many image tokens as the model makes features of an image."""
        token = self.first("image_token_id", "image_token_index", default=None)
        features_of = getattr(self.model, "get_image_features", None)
        if not {"input_ids", "pixel_values"} <= {*self.names} or features_of is None:
            return
        for shape in (self.rows(), *self.shapes["pixel_values"][:3]) if token is not None else ():
            if (len(shape) == 2) != ("image_grid_thw" in self.names):
                continue
            pixels: Inputs = {"pixel_values": self.normal(*shape)}
            if len(shape) == 2:
                pixels["image_grid_thw"] = torch.tensor(GRID)
            with contextlib.suppress(Exception), torch.no_grad():
                features = features_of(**pixels)
                features = getattr(features, "pooler_output", features)
                leaves = tree_leaves(features)
                count = sum(x.numel() // x.shape[-1] for x in leaves) // BATCH
                if count <= 300:
                    yield self._with_images(pixels, token, count)

    def _with_images(self, pixels: Inputs, token: int, count: int) -> Inputs:
        """Returns inputs with so many image tokens in each text."""
        ids, images = self.tokens(), torch.full((BATCH, count), token)
        ids = torch.cat([ids[:, :4], images, ids[:, 4:]], 1)
        mask = torch.ones_like(ids)
        mask[1, -3:] = 0
        inputs: Inputs = {"input_ids": ids, "attention_mask": mask, **pixels}
        if "mm_token_type_ids" in self.names:
            inputs["mm_token_type_ids"] = (ids == token).int()
        return inputs
