"""``anyjax generate`` of a pipeline of diffusers: a picture, a video or a sound in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from anyjax.cli import _shown, _tokenizer
from anyjax.cli._stages import Stages
from anyjax.cli.reading import Generate
from anyjax.errors import WrongValue
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from anyjax.diffusers import Pipeline

INDEX = "model_index.json"
console = Console(stderr=True)


def is_pipeline(source: str) -> bool:
    """Returns whether this is the folder of a pipeline of diffusers."""
    return (Path(source).expanduser() / INDEX).is_file()


def draw(options: Generate, stages: Stages) -> None:
    """Writes what the pipeline makes of the prompt.

    Raises:
      WrongValue: no file is named, or the pipeline makes something else than that file holds.
    """
    if options.output is None:
        raise WrongValue(
            f"{options.source} is a pipeline of diffusers, and no file is named",
            why="a picture is not printed",
            do="name one: --output picture.png, .gif for frames, .wav for a sound",
        )
    prompt = _tokenizer.prompt_of(options.prompt)
    with _shown.progress("loading"):
        import jax

        import anyjax

        stages.end("imports")
        dtype: dict[str, Any] = {"torch_dtype": options.dtype} if options.dtype else {}
        pipe = anyjax.from_diffusers(Path(options.source).expanduser(), **dtype)
        stages.end("weights")
    steps = {"steps": options.steps} if options.steps else {}
    key = jax.random.key(options.seed)
    out: Any = pipe(prompt, rng=key, progress=not options.json, **steps)
    write(out[0], Path(options.output).expanduser(), pipe)
    stages.end("picture")
    if options.json:
        about = {"model": type(pipe.pipeline).__name__, "file": options.output}
        _shown.as_json({**about, "seconds": stages.seconds})
    else:
        print(options.output)
    if options.profile:
        console.print(_shown.table(["stage", "seconds"], stages.rows(), right=(1,)))


def write(results: PyTree, file: Path, pipe: Pipeline) -> None:
    """Writes the first result of a pipeline: a picture, frames, or samples of a sound.

    Raises:
      WrongValue: the file is of another kind.
    """
    first = results[0]
    is_sound = not hasattr(first, "save") and not isinstance(first, list)
    if is_sound != (file.suffix == ".wav"):
        raise WrongValue(
            f"--output {file.name}",
            why=f"the pipeline makes {'sounds' if is_sound else 'pictures'}",
            do="name a .wav file" if is_sound else "name a .png, .jpg, .gif or .webp file",
        )
    if is_sound:
        import numpy as np
        from scipy.io import wavfile

        vae = pipe.pipeline.vae
        rate = getattr(vae.config, "sampling_rate", None) or 16000
        wavfile.write(file, rate, np.asarray(first, np.float32).T)
    elif isinstance(first, list):
        first[0].save(file, save_all=True, append_images=first[1:], duration=125, loop=0)
    else:
        first.save(file)
