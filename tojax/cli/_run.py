"""``tojax run``: the main job from a checkpoint to text, with JAX beside PyTorch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tojax.cli import _generate as text
from tojax.errors import NotNumbers

TOLERANCE = {
    "float32": 1e-3,
    "bfloat16": 5e-2,
    "float16": 1e-2,
}  # above this the two disagree: exit code 3
REPEATS = 5


def run(source, prompt, max_new_tokens, dtype, task, allow_pickle, start) -> None:
    """See ``tojax run --help``."""
    console = Console(highlight=False)
    status = Console(stderr=True)
    with status.status("reading the checkpoint") as bar:
        from tojax.hf.checkpoint import find

        found = find(source, allow_pickle=allow_pickle)
        bar.update("importing torch, transformers and JAX")
        import torch

        import tojax
        from tojax.hf import inputs
        from tojax.hf.module import load_module

        imports = time.time() - start
        bar.update("loading weights")
        load, module = _timed(
            lambda: load_module(found, dtype=dtype, task=task, allow_pickle=allow_pickle)
        )
        tokenizer = text.load_tokenizer(found) if prompt or _writes(module) else None
        ids = text.encode(tokenizer, prompt) if tokenizer else None
        given = inputs.example(module, ids)
        if ids is not None and _writes(module):
            max_new_tokens = text.room(module, ids, max_new_tokens)
        bar.update("converting")
        convert, model = _timed(lambda: tojax.from_torch(module))
        bar.update("running PyTorch")
        torch_times, want = _torch_times(torch, module, given)
        jax_times, got = _jax_times(bar, model, given)
    console.print(f"[bold]{model.source.name}[/bold] from {found.folder}")
    console.print(_size(model))
    difference, name = _difference(want, got)
    kind = str(next(iter(model.params.values())).dtype)
    console.print(
        f"largest difference to PyTorch: {difference:.2e} of the largest value ({name}, {kind})"
    )
    console.print(_table((imports, load, convert, *jax_times), torch_times))
    refuse_nan(want, got, model, found.folder)
    if difference > TOLERANCE.get(kind, 5e-2):
        status.print("error: JAX and PyTorch disagree")
        sys.exit(3)
    if tokenizer and _writes(module):
        _write(console, model, tokenizer, ids, max_new_tokens, start)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    out = call()
    return time.perf_counter() - began, out


def _writes(module) -> bool:
    from transformers.generation import GenerationMixin

    return isinstance(module, GenerationMixin) and not module.config.is_encoder_decoder


def _torch_times(torch, module, given) -> tuple[tuple[float, float], dict[str, np.ndarray]]:
    tensors = {k: torch.from_numpy(v) for k, v in given.items()}
    floating = {k: v.to(module.dtype) if v.is_floating_point() else v for k, v in tensors.items()}

    def call():
        with torch.no_grad():
            return module(**floating)

    first, out = _timed(call)
    following = min(_timed(call)[0] for _ in range(REPEATS))
    return (first, following), {k: v.float().numpy() for k, v in _floats(out, torch.Tensor).items()}


def _jax_times(bar, model, given) -> tuple[tuple[float, ...], dict[str, Any]]:
    """((trace, compile, first, following), outputs)"""
    import jax
    import torch

    bar.update("tracing")
    step = jax.jit(lambda p, s, kwargs: _arrays(model.apply(p, state=s, **kwargs)))
    arrays = {k: model.source.as_array(torch.from_numpy(v)) for k, v in given.items()}
    trace, traced = _timed(lambda: step.trace(model.params, model.state, arrays))
    bar.update("compiling")
    compile_, compiled = _timed(lambda: traced.lower().compile())
    bar.update("running JAX")
    call = lambda: jax.block_until_ready(compiled(model.params, model.state, arrays))
    first, got = _timed(call)
    return (trace, compile_, first, min(_timed(call)[0] for _ in range(REPEATS))), got


def _floats(out, kind) -> dict[str, Any]:
    """The floating-point outputs by name; caches are left out."""
    items = (
        out.items()
        if hasattr(out, "items")
        else enumerate(out if isinstance(out, tuple) else (out,))
    )
    return {str(k): v for k, v in items if isinstance(v, kind) and "float" in str(v.dtype)}


def _arrays(out):
    import jax

    return _floats(out, jax.Array)


def _difference(want, got) -> tuple[float, str]:
    """The largest difference, relative to the output's largest finite value, and its output; NaN
    and infinities that both give are none.
    """
    worst = (0.0, next(iter(want)))
    for name, reference in want.items():
        values = np.asarray(got[name]).astype(np.float64)
        other = ~((values == reference) | (np.isnan(values) & np.isnan(reference)))
        scale = np.abs(reference[np.isfinite(reference)]).max(initial=1e-6)
        error = np.abs(values[other] - reference[other]).max(initial=0.0) / scale
        worst = max(worst, (float(error) if np.isfinite(error) else float("inf"), name))
    return worst


def refuse_nan(want, got, model, place) -> None:
    """Raises NotNumbers where both sides give NaN: they agree, and nothing is known."""
    both = {
        k: np.isnan(v) & np.isnan(np.asarray(got[k]).astype(np.float64)) for k, v in want.items()
    }
    if not (found := [f"{k}: {v.mean():.0%} of its values" for k, v in both.items() if v.any()]):
        return
    finite = lambda array: bool(np.isfinite(np.asarray(array).astype(np.float32)).all())
    weights = [name for name, array in model.params.items() if not finite(array)]
    raise NotNumbers(
        f"both give NaN ({', '.join(found)})",
        where=str(place),
        why=f"{len(weights)} weights hold NaN or infinite values: {', '.join(weights[:3])}"
        if weights
        else "all weights are finite, so a computation overflows",
        do="get the checkpoint again" if weights else "try --dtype float32",
    )


def _size(model) -> str:
    count = sum(a.size for a in model.params.values())
    size = sum(a.nbytes for a in model.params.values())
    return f"{count / 1e6:.2f} M parameters, {size / 1e6:.1f} MB"


def _table(ours: tuple[float, ...], theirs: tuple[float, float], peer: str = "PyTorch") -> Table:
    """``ours`` is imports, load, convert, trace, compile, first, following; ``theirs`` the last."""
    table = Table(title="time in milliseconds", title_justify="left")
    table.add_column("step")
    for name in ("JAX", peer, f"JAX / {peer}"):
        table.add_column(name, justify="right")
    for name, seconds in zip(("imports", "load", "convert", "trace", "compile"), ours):
        table.add_row(name, f"{1e3 * seconds:.1f}")
    for name, mine, other in zip(("first run", "following runs"), ours[-2:], theirs):
        table.add_row(name, f"{1e3 * mine:.2f}", f"{1e3 * other:.2f}", f"{mine / other:.2f}")
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
