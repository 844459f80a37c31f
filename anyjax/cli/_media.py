"""Pictures and sounds of a prompt, which the checkpoint's own processor makes arrays of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from anyjax.cli import _tokenizer
from anyjax.errors import BadCheckpoint, MissingDependency, WrongValue

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

Arrays = dict[str, np.ndarray]


class Prompt(NamedTuple):
    """A prompt with its pictures and sounds, as files."""

    text: str
    pictures: Sequence[str] = ()
    sounds: Sequence[str] = ()


def batch_of(folder: Path, prompt: Prompt) -> tuple[Arrays, Any]:
    """Returns the model's arguments for one prompt, by name, and the tokenizer, if there is one.

    Raises:
      BadCheckpoint: the folder holds no processor, or one of other things.
      MissingDependency: the processor needs a package that is not installed.
      WrongValue: a file is no picture or sound.
    """
    processor: Any = _processor(folder)
    pictures = [picture(file) for file in prompt.pictures]
    rate = getattr(getattr(processor, "feature_extractor", processor), "sampling_rate", None)
    sounds = [sound(file, rate or 16000) for file in prompt.sounds]
    options: dict[str, Any] = {"images": pictures} if pictures else {}
    if sounds:
        options |= {"audio": sounds, "sampling_rate": rate}
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is not None and (pictures or prompt.text):
        options["text"] = [_text(processor, prompt)]
    try:
        out = processor(**options, return_tensors="np")
    except (TypeError, ValueError) as error:
        raise BadCheckpoint(
            f"{type(processor).__name__} takes no such prompt",
            where=str(folder),
            why=" ".join(str(error).split())[:200],
            do=f"give what it takes: it was called with {', '.join(options)}",
        ) from error
    return {k: np.asarray(x) for k, x in out.items()}, tokenizer


def _processor(folder: Path) -> Any:
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise BadCheckpoint(
            f"{folder.name} has no processor that can be read",
            where=str(folder),
            why=" ".join(str(error).split())[:200],
            do="add preprocessor_config.json or processor_config.json, which the model came with",
        ) from None
    except ImportError as error:
        named = re.search(r"(\w+) requires the (\w+) library", str(error))
        reader, package = named.groups() if named else ("transformers", error.name or str(error))
        raise MissingDependency(
            f"{reader} of {folder.name} needs the package {package.lower()}",
            why="it reads pictures, videos or sounds with it",
            do=f"pip install {package.lower()}",
        ) from None


def _text(processor: Any, prompt: Prompt) -> str:
    """Returns the text with places for pictures and sounds: as a chat where the model has a
    template of them, before the text where it names none.
    """
    media = {"image": prompt.pictures, "audio": prompt.sounds}
    places = {k: getattr(processor, f"{k}_token", None) for k in media}
    if any(token and token in prompt.text for token in places.values()):
        return prompt.text
    if getattr(processor, "chat_template", None):
        content = [{"type": kind} for kind, files in media.items() for _ in files]
        chat = [{"role": "user", "content": [*content, {"type": "text", "text": prompt.text}]}]
        text: str = processor.apply_chat_template(chat, add_generation_prompt=True)
        return text
    tokens = [places[k] or "" for k, files in media.items() for _ in files]
    return "".join([*tokens, prompt.text])


def forward_of(module: torch.nn.Module, batch: Arrays) -> Arrays:
    """Returns the arguments of a forward pass: with an encoder the first token, too."""
    config: Any = module.config
    if not config.is_encoder_decoder or "decoder_input_ids" in batch:
        return dict(batch)
    start = config.decoder_start_token_id
    rows = len(next(iter(batch.values())))
    return {**batch, "decoder_input_ids": np.full((rows, 1), 0 if start is None else start)}


def picture(file: str) -> Image:
    """Reads a picture.

    Raises:
      WrongValue: it is none that Pillow reads.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(Path(file).expanduser()).convert("RGB")
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise WrongValue(
            f"--image {file}",
            why=" ".join(str(error).split())[:200],
            do="name a file that Pillow reads, such as a .png or .jpg",
        ) from None


def sound(file: str, rate: int) -> np.ndarray:
    """Reads a .wav file as one channel of float32 within -1 and 1, at this rate.

    Raises:
      WrongValue: it is no .wav file.
    """
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    try:
        own_rate, samples = wavfile.read(Path(file).expanduser())
    except (OSError, ValueError) as error:
        raise WrongValue(
            f"--audio {file}",
            why=" ".join(str(error).split())[:200],
            do=f"name a .wav file, such as of: ffmpeg -i {file} -ac 1 sound.wav",
        ) from None
    scale = 1.0
    if samples.dtype.kind in "iu":
        scale = float(np.iinfo(samples.dtype).max)
        samples = samples.astype(np.float64) - (128 if samples.dtype == np.uint8 else 0)
        scale = 128.0 if scale == 255.0 else scale
    mono = samples.reshape(len(samples), -1).mean(1) / scale
    common = np.gcd(own_rate, rate)
    mono = mono if own_rate == rate else resample_poly(mono, rate // common, own_rate // common)
    return np.asarray(mono, np.float32)


def prompt_of(
    text: str | None, pictures: Sequence[str] | None, sounds: Sequence[str] | None
) -> Prompt:
    """Returns a prompt; the text is not asked for where there are pictures or sounds."""
    media = pictures or (), sounds or ()
    return Prompt(_tokenizer.prompt_of(text or "" if any(media) else text), *media)
