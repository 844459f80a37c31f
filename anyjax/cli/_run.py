"""``anyjax run``: the main job from a checkpoint to text, with JAX beside PyTorch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.status import Status
from rich.table import Table

from anyjax.cli import _generate as text
from anyjax.cli import _shown, _source
from anyjax.cli._codes import ExitCode
from anyjax.cli._shown import timed
from anyjax.cli.options import Run
from anyjax.errors import BadCheckpoint, NotNumbers
from anyjax.model import Model
from anyjax.units import duration, size

STEPS = ("imports", "load", "convert", "trace", "compile", "first run", "following runs")
TOLERANCE = {
    "float32": 1e-3,
    "bfloat16": 5e-2,
    "float16": 1e-2,
}  # above this the two disagree: exit code 3
REPEATS = 5


def run(options: Run, start: float) -> None:
    """Runs ``anyjax run``."""
    console = _shown.console()
    with _shown.progress("reading the checkpoint") as bar:
        resolved = _source.resolve(
            options.source, options.adapter, allow_pickle=options.allow_pickle
        )
        prompt = text.prompt_of(options.prompt)
        bar.update("importing torch, transformers and JAX")
        import jax
        import torch

        import anyjax
        from anyjax.hf.loading import inputs

        imports = time.time() - start
        bar.update("loading weights")
        load, module = timed(lambda: _module(resolved, options))
        tokenizer, note = _tokenizer(resolved, module, prompt)
        ids = text.encode(tokenizer, prompt) if tokenizer else None
        example = inputs.example(module, ids)
        bar.update("converting")
        convert, model = timed(lambda: anyjax.from_torch(module))
        bar.update("running PyTorch")
        torch_times, want = _torch_times(torch, module, example)
        jax_times, got = jax_times_of(bar, model, (), example, lambda out: _floats(out, jax.Array))
    place = resolved.adapter or resolved.checkpoint.folder
    kind = str(next(iter(model.params.values())).dtype)
    times = imports, load, convert, *jax_times
    comparison = Comparison("PyTorch", model, place, kind, times, torch_times)
    comparison.show(console, want, got, options.json, note)
    if ids is not None and _writes(module) and not options.json:
        new_tokens = text.room(module, ids, options.max_new_tokens)
        _write(console, model, tokenizer, ids, new_tokens, start)


def _module(resolved: _source.ResolvedSource, options: Run) -> Any:
    """Loads transformers' module with its weights, and the adapter's."""
    from anyjax.hf.loading.module import load_module

    load_options: dict[str, Any] = {
        "dtype": options.dtype,
        "task": options.task,
        "allow_pickle": options.allow_pickle,
    }
    if resolved.adapter is None:
        return load_module(resolved.checkpoint, **load_options)
    return _source.model_of(resolved, **load_options).to_torch().eval()


def _tokenizer(resolved: _source.ResolvedSource, module: Any, prompt: str) -> tuple[Any, str]:
    """Returns the tokenizer of a model that writes, and a remark where there is none: the outputs
    of a model without one are compared all the same.
    """
    if not prompt and not _writes(module):
        return None, ""
    try:
        return text.tokenizer_of(resolved), ""
    except BadCheckpoint:
        if prompt:
            raise
        return None, "no tokenizer: token ids are made up, and no text is written"


@dataclass(frozen=True)
class Comparison:
    """The measurements of a model in JAX and in another framework, ``peer``.

    Attributes:
      times: of imports, load, convert, trace, compile, first and following runs.
      peer_times: of the first and the following runs of ``peer``.
    """

    peer: str
    model: Model
    place: Any
    dtype: str
    times: tuple[float, ...]
    peer_times: tuple[float, float]

    def show(
        self, console: Console, want: object, got: object, as_json: bool, note: str = ""
    ) -> None:
        """Prints the comparison; ends with exit code 3 if the outputs disagree."""
        difference, name = _difference(want, got)
        agree = difference <= TOLERANCE.get(self.dtype, 5e-2)
        if as_json:
            _shown.as_json(self.as_dict() | {"difference": difference, "of": name, "agree": agree})
        else:
            console.print(f"[bold]{self.model.source.name}[/bold] from {self.place}")
            console.print(_size(self.model))
            if note:
                console.print(note)
            console.print(
                f"largest difference to {self.peer}: {difference:.2e} of the largest value "
                f"({name}, {self.dtype})"
            )
            console.print(_table(self.times, self.peer_times, self.peer))
        refuse_nan(want, got, self.model, self.place)
        if not agree:
            Console(stderr=True).print(f"error: JAX and {self.peer} disagree")
            sys.exit(ExitCode.DISAGREE)

    def as_dict(self) -> dict[str, Any]:
        """Returns the numbers by name, times in seconds."""
        arrays = self.model.params.values()
        return {
            "model": self.model.source.name,
            "from": str(self.place),
            "parameters": sum(a.size for a in arrays),
            "bytes": sum(a.nbytes for a in arrays),
            "dtype": self.dtype,
            "seconds": dict(zip(STEPS, self.times)),
            f"seconds of {self.peer}": dict(zip(STEPS[-2:], self.peer_times)),
        }


def _writes(module) -> bool:
    from transformers.generation import GenerationMixin

    return isinstance(module, GenerationMixin) and not module.config.is_encoder_decoder


def _torch_times(torch, module, given) -> tuple[tuple[float, float], dict[str, np.ndarray]]:
    tensors = {k: torch.from_numpy(v) for k, v in given.items()}
    floating = {k: v.to(module.dtype) if v.is_floating_point() else v for k, v in tensors.items()}

    def call():
        with torch.no_grad():
            return module(**floating)

    first, out = timed(call)
    following = min(timed(call)[0] for _ in range(REPEATS))
    return (first, following), {k: v.float().numpy() for k, v in _floats(out, torch.Tensor).items()}


def jax_times_of(
    bar: Status, model: Model, args: tuple, kwargs: dict, named: Callable[[Any], dict[str, Any]]
) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Returns ((trace, compile, first, following), outputs as ``named`` picks them)."""
    import jax

    bar.update("tracing")
    leaves, structure = jax.tree.flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray)]

    @jax.jit
    def step(params, state, arrays):
        for i, x in zip(places, arrays):
            leaves[i] = x
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return named(model.apply(params, *args, state=state, **kwargs))

    arrays = [jax.numpy.asarray(model.source.as_array(leaves[i])) for i in places]
    trace, traced = timed(lambda: step.trace(model.params, model.state, arrays))
    bar.update("compiling")
    compiling, compiled = timed(lambda: traced.lower().compile())
    bar.update("running JAX")
    call = lambda: jax.block_until_ready(compiled(model.params, model.state, arrays))
    first, outputs = timed(call)
    return (trace, compiling, first, min(timed(call)[0] for _ in range(REPEATS))), outputs


def _floats(out, kind) -> dict[str, Any]:
    """Returns the floating-point outputs by name, without caches."""
    items = (
        out.items()
        if hasattr(out, "items")
        else enumerate(out if isinstance(out, tuple) else (out,))
    )
    return {str(k): v for k, v in items if isinstance(v, kind) and "float" in str(v.dtype)}


def _difference(want, got) -> tuple[float, str]:
    """Returns the largest difference, relative to the output's largest finite value, and the name
    of that output. Equal NaN and infinities do not count.
    """
    largest = (0.0, next(iter(want)))
    for name, reference in want.items():
        values = np.asarray(got[name]).astype(np.float64)
        differ = ~((values == reference) | (np.isnan(values) & np.isnan(reference)))
        scale = np.abs(reference[np.isfinite(reference)]).max(initial=1e-6)
        error = np.abs(values[differ] - reference[differ]).max(initial=0.0) / scale
        largest = max(largest, (float(error) if np.isfinite(error) else float("inf"), name))
    return largest


def refuse_nan(want, got, model, place) -> None:
    """Raises NotNumbers if both sides give NaN: then their agreement means nothing."""
    both = {
        k: np.isnan(v) & np.isnan(np.asarray(got[k]).astype(np.float64)) for k, v in want.items()
    }
    shares = [f"{k}: {v.mean():.0%} of its values" for k, v in both.items() if v.any()]
    if not shares:
        return
    finite = lambda array: bool(np.isfinite(np.asarray(array).astype(np.float32)).all())
    weights = [name for name, array in model.params.items() if not finite(array)]
    raise NotNumbers(
        f"both give NaN ({', '.join(shares)})",
        where=str(place),
        why=f"{len(weights)} weights hold NaN or infinite values: {', '.join(weights[:3])}"
        if weights
        else "all weights are finite, so a computation overflows",
        do="get the checkpoint again" if weights else "try --dtype float32",
    )


def _size(model) -> str:
    count = sum(a.size for a in model.params.values())
    nbytes = sum(a.nbytes for a in model.params.values())
    return f"{count:,} parameters, {size(nbytes)}"


def _table(ours: tuple[float, ...], theirs: tuple[float, float], peer: str = "PyTorch") -> Table:
    """Returns a table of times: ``ours`` of all steps, ``theirs`` of the last two."""
    table = _shown.table(["step", "JAX", peer, f"JAX beside {peer}"], title="time", right=(1, 2, 3))
    for name, seconds in zip(STEPS[:-2], ours):
        table.add_row(name, duration(seconds))
    for name, x, y in zip(STEPS[-2:], ours[-2:], theirs):
        table.add_row(name, duration(x), duration(y), _shown.speed(x, y))
    return table


def _write(console, model, tokenizer, ids, max_new_tokens, start) -> None:
    seen = []
    console.print()
    began = time.perf_counter()
    out = text.stream(
        model, tokenizer, ids, max_new_tokens, on_token=lambda _: seen.append(time.time())
    )
    count = out.shape[1] - ids.shape[1]
    tokens = (
        (len(seen) - 3) / (seen[-1] - seen[2])  # both programs are compiled by then
        if len(seen) > 3
        else count / (time.perf_counter() - began)
    )
    console.print(
        f"\n[dim]first token {seen[1] - start:.1f} s after the start of the process; "
        f"{count} tokens, {tokens:.0f} tokens/s after the first[/dim]",
        soft_wrap=True,
    )
