"""``anyjax generate``: text that continues a prompt, or the picture of a pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from anyjax.cli import _media, _pictures, _shown, _tokenizer, sources
from anyjax.cli._stages import Stages
from anyjax.cli.reading import Generate
from anyjax.errors import WrongValue

if TYPE_CHECKING:
    import torch

console = Console(stderr=True)


def generate(options: Generate) -> None:
    """Runs ``anyjax generate``."""
    stages = Stages()
    if _pictures.is_pipeline(options.source):
        _pictures.draw(options, stages)
        return
    if options.output or options.steps:
        raise WrongValue(
            "--output and --steps of a language model",
            why="they are options of pipelines of diffusers; text is printed",
            do=f"name a folder with {_pictures.INDEX}, or leave them out",
        )
    sources.find(options, ("hf", "saved"), takes=("prompt", "image", "audio", "max_new_tokens"))
    is_saved = sources.kind_of(options.source, ("hf", "saved")) == "saved"
    run = _saved_loop if is_saved else _checkpoint
    name, tokenizer, ids, out = run(options, stages)
    stages.end("tokens")
    text = tokenizer.decode(out[0].tolist(), skip_special_tokens=True)
    if options.json:
        counts = {"prompt_tokens": ids.shape[1], "tokens": out.shape[1] - ids.shape[1]}
        _shown.as_json({"model": name, "text": text, **counts, "seconds": stages.seconds})
    elif is_saved:
        print(text)
    if options.profile:
        console.print(_shown.table(["stage", "seconds"], stages.rows(), right=(1,)))


def _checkpoint(options: Generate, stages: Stages) -> tuple[str, Any, np.ndarray, np.ndarray]:
    """Returns the model's name, its tokenizer, the prompt's ids and all; text is printed as it
    comes.
    """
    from anyjax.cli.sources import checkpoint

    resolved = checkpoint.resolve(
        options.source, options.adapter, allow_pickle=options.allow_pickle
    )
    prompt = _media.prompt_of(options.prompt, options.image, options.audio)
    with _shown.progress("loading"):
        import anyjax.hf.generation._generate
        import anyjax.hf.loading.load  # and torch, transformers, JAX

        stages.end("imports")
        load = {"dtype": options.dtype, "allow_pickle": options.allow_pickle}
        model = checkpoint.model_of(resolved, **load)
        stages.end("weights")
        folder = options.tokenizer
        media: dict[str, Any] = {}
        if prompt.pictures or prompt.sounds:
            media, tokenizer = _media.batch_of(resolved.checkpoint.folder, prompt)
            ids: Any = media.pop("input_ids", None)
        else:
            named = Path(folder).expanduser() if folder else None
            tokenizer = _tokenizer.load(named) if named else resolved.tokenizer()
            ids = _tokenizer.encode(tokenizer, prompt.text)
        stages.end("tokenizer")
    beginning = np.zeros((1, 0), int) if ids is None else ids
    settings = options.sampling() | media
    settings["max_new_tokens"] = room(model.source.module, beginning, options.max_new_tokens)
    stages.listen()
    if ids is None:  # behind an encoder
        with _shown.progress("generating"):
            out = np.asarray(anyjax.generate(model, **settings))
        if not options.json:
            print(tokenizer.decode(out[0].tolist(), skip_special_tokens=True))
        return model.source.name, tokenizer, beginning, out
    if options.json:
        with _shown.progress("generating"):
            out = np.asarray(anyjax.generate(model, ids, **settings))
    else:
        puts = itertools.count()  # the prompt comes first
        first_token = lambda _: stages.end("first token") if next(puts) else None
        out = stream(model, tokenizer, ids, first_token, **settings)
    return model.source.name, tokenizer, ids, out


def _saved_loop(options: Generate, stages: Stages) -> tuple[str, Any, np.ndarray, np.ndarray]:
    """Runs a saved loop; returns the same."""
    from anyjax.cli.sources import saved

    about = saved.about_of(options.source)
    loop = about["programs"].get("generate", {})
    folder = saved.tokenizer_folder(options.source, options.tokenizer)
    prompt = _media.prompt_of(options.prompt, options.image, options.audio)
    with _shown.progress("loading"):
        import anyjax.model
        from anyjax.hf.generation import saved_loop  # noqa: F401  (and JAX)

        stages.end("imports")
        written_here = options.tokenizer is None  # by transformers, for `anyjax export`
        fast = _tokenizer.fast_tokenizer(folder) if written_here else None
        tokenizer = fast or _tokenizer.load(folder)
        stages.end("tokenizer")
        model = anyjax.load(options.source)
        stages.end("weights and programs")
    stages.listen()
    settings: dict[str, Any] = options.sampling()
    if prompt.pictures or prompt.sounds:
        media, tokenizer = _media.batch_of(folder, prompt)
        ids: Any = media.pop("input_ids", np.zeros((1, 0), int))
        settings |= media
    else:
        ids = _tokenizer.encode(tokenizer, prompt.text)
    maximum = loop.get("new_tokens")
    if maximum is not None:
        if maximum < options.max_new_tokens:
            console.print(
                f"the loop was saved for {maximum} new tokens, not {options.max_new_tokens}"
            )
        settings["max_new_tokens"] = min(options.max_new_tokens, maximum)
    if loop.get("samples"):
        import jax

        settings["rng"] = jax.random.key(options.seed)
    with _shown.progress("generating"):
        prompts = (ids,) if ids.size else ()
        out = np.asarray(anyjax.generate(model, *prompts, **settings))
    return about["name"], tokenizer, ids, out


def room(module: torch.nn.Module, ids: np.ndarray, max_new_tokens: int) -> int:
    """Returns how many new tokens the model has positions for; prints a note if it is fewer."""
    config = module.config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    if (
        not isinstance(positions, int)
        or positions < 1
        or ids.shape[1] + max_new_tokens <= positions
    ):
        return max_new_tokens
    remaining = positions - ids.shape[1]
    if remaining < 1:
        raise WrongValue(
            f"the prompt has {ids.shape[1]} tokens, the model {positions} positions",
            why="max_position_embeddings in config.json says so",
            do="shorten the prompt",
        )
    console.print(
        f"the model has {positions} positions: {remaining} new tokens, not {max_new_tokens}"
    )
    return remaining


def stream(
    model: Any, tokenizer: Any, ids: Any, on_token: Callable[[Any], object], **settings: Any
) -> np.ndarray:
    """Prints prompt and continuation token by token; returns all ids."""
    from transformers import TextStreamer

    import anyjax

    class Streamer(TextStreamer):
        prompt: Any = None
        has_printed_prompt = False

        def put(self, value):
            if self.prompt is None:
                self.prompt = value  # it is printed with the first token, after "compiling"
            else:
                self.print_prompt()
                super().put(value)
            on_token(value)

        def end(self):
            self.print_prompt()
            super().end()

        def print_prompt(self):
            if not self.has_printed_prompt:
                self.has_printed_prompt = True
                bar.stop()
                super().put(self.prompt)

    with _shown.progress("compiling") as bar:
        streamer = Streamer(tokenizer, skip_special_tokens=True)
        return np.asarray(anyjax.generate(model, ids, streamer=streamer, **settings))
