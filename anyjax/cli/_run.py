"""``anyjax run``: a model in JAX beside its own framework, and then the text that it writes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from anyjax.cli import _generate, _shown, _tokenizer, sources
from anyjax.cli._codes import ExitCode
from anyjax.cli._shown import timed
from anyjax.cli._stages import START
from anyjax.cli.reading import Run
from anyjax.cli.sources import Opened, Peer, Request, described, listed
from anyjax.compare.differences import apart
from anyjax.errors import NotNumbers, Unsupported
from anyjax.typing import PyTree
from anyjax.units import duration, size

# By dtype: a larger difference is one that rounding does not explain, and ends with exit code 3.
TOLERANCE = {"float32": 1e-3, "float64": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
REPEATS = 5
ALONE = "nothing to compare it with"


def run(options: Run) -> None:
    """Runs ``anyjax run``."""
    source, prompt = sources.find(options), _tokenizer.prompt_of(options.prompt)
    with _shown.progress("reading the files") as bar:
        example = {"rows": options.batch, "prompt": prompt, "peer": True, "report": bar.update}
        opened = source.opened(Request.of(options, **example))
        peer = opened.peer
        if peer is None:
            return _run_saved(opened, options)
        bar.update(f"running {peer.name}")
        theirs, expected = _times(peer.run)
        ours, outputs = _jax_times(bar.update, opened, peer)
    want = {k: np.asarray(x) for k, x in peer.named(expected).items()}
    got = {k: np.asarray(x) for k, x in outputs.items()}
    largest, name = difference(want, got)
    kind = _coarsest([*opened.model.params.values(), *got.values()])
    agree = largest <= TOLERANCE.get(kind, 5e-2)
    seconds = opened.seconds | ours
    if options.json:
        about = _about(opened, kind) | {"seconds": seconds, f"seconds of {peer.name}": theirs}
        _shown.as_json(about | {"difference": largest, "of": name, "agree": agree})
    else:
        _show(opened, f"{peer.name}: {largest:.2e} of the largest value ({name}, {kind})")
        _shown.console().print(_table(seconds, theirs, peer.name))
    _refuse_nan(want, got, opened)
    if not agree:
        Console(stderr=True).print(f"error: JAX and {peer.name} disagree")
        sys.exit(ExitCode.DISAGREE)
    if opened.writes and not options.json:
        _write(opened, options.max_new_tokens)
    return None


def _run_saved(opened: Opened, options: Run) -> None:
    """Times a saved model: there is nothing to compare it with."""
    import jax

    call = lambda: jax.block_until_ready(opened.model(**opened.kwargs))
    times, out = _times(call)
    seconds = {"load": opened.seconds["load"], **times}
    inputs = described({k: x for k, x in opened.kwargs.items() if k != "rng"})
    outputs = [*described({str(i): x for i, x in enumerate(jax.tree.leaves(out))}).values()]
    if options.json:
        about = {"model": opened.model.source.name, "folder": opened.place}
        return _shown.as_json(about | {"inputs": inputs, "outputs": outputs, "seconds": seconds})
    console = _shown.console()
    _shown.heading(opened.model.source.name, f" from {opened.place}, saved: {ALONE}")
    console.print(f"inputs: {listed(inputs)}; outputs: {', '.join(outputs)}")
    rows = [(name, duration(x)) for name, x in seconds.items()]
    return console.print(_shown.table(["step", "JAX"], rows, right=(1,)))


def _times(run: Callable[[], PyTree]) -> tuple[dict[str, float], PyTree]:
    """Returns the seconds of the first run and of the following ones, and the outputs."""
    first, out = timed(run)
    following = min(timed(run)[0] for _ in range(REPEATS))
    return {"first run": first, "following runs": following}, out


def _jax_times(
    report: Callable[[str], None], opened: Opened, peer: Peer
) -> tuple[dict[str, float], dict[str, jax.Array]]:
    """Returns the seconds of each step in JAX, and the outputs by name."""
    report("tracing")
    model = opened.model
    leaves, structure = jax.tree.flatten((opened.args, opened.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray)]

    @jax.jit
    def step(params, state, arrays):
        for i, x in zip(places, arrays):
            leaves[i] = x
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return peer.named(model.apply(params, *args, state=state, **kwargs))

    arrays = [jax.numpy.asarray(model.source.as_array(leaves[i])) for i in places]
    trace, traced = timed(lambda: step.trace(model.params, model.state, arrays))
    report("compiling")
    compiling, compiled = timed(lambda: traced.lower().compile())
    report("running JAX")
    call = lambda: jax.block_until_ready(compiled(model.params, model.state, arrays))
    times, outputs = _times(call)
    return {"trace": trace, "compile": compiling, **times}, outputs


def _coarsest(arrays: list[jax.Array | np.ndarray]) -> str:
    """Returns the dtype of some arrays whose rounding is the largest."""
    kinds = {str(x.dtype) for x in arrays if "float" in str(x.dtype)}
    return max(sorted(kinds), key=lambda x: TOLERANCE.get(x, 1.0), default="float32")


def difference(want: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> tuple[float, str]:
    """Returns the largest difference, relative to the output's largest finite value, and the name
    of that output. Equal NaN and infinities do not count; where shapes differ it is infinite.

    Raises:
      Unsupported: no output has numbers.
    """
    numbers = {k: x for k, x in want.items() if x.dtype.kind not in "OSU"}
    if not numbers:
        raise Unsupported(
            "there is nothing to compare",
            why="the model has no outputs of numbers",
            do="call it from Python, and look at what it gives",
        )
    return max((apart(got[name], value), name) for name, value in numbers.items())


def _refuse_nan(want: dict[str, np.ndarray], got: dict[str, np.ndarray], opened: Opened) -> None:
    """Raises NotNumbers if both sides give NaN: then their agreement means nothing."""
    is_nan = lambda x: x != x  # of any dtype
    both = {k: is_nan(x) & is_nan(got[k]) for k, x in want.items() if x.shape == got[k].shape}
    shares = [f"{k}: {x.mean():.0%} of its values" for k, x in both.items() if x.any()]
    if not shares:
        return
    finite = lambda array: bool(np.isfinite(np.asarray(array).astype(np.float32)).all())
    weights = [name for name, array in opened.model.params.items() if not finite(array)]
    raise NotNumbers(
        f"both give NaN ({', '.join(shares)})",
        where=str(opened.place),
        why=f"{len(weights)} weights hold NaN or infinite values: {', '.join(weights[:3])}"
        if weights
        else "all weights are finite, so a computation overflows",
        do="get the checkpoint again" if weights else "try --dtype float32",
    )


def _about(opened: Opened, dtype: str) -> dict[str, Any]:
    """Returns the model by name, place and sizes."""
    arrays = opened.model.params.values()
    return {
        "model": opened.model.source.name,
        "from": str(opened.place),
        "parameters": sum(x.size for x in arrays),
        "bytes": sum(x.nbytes for x in arrays),
        "dtype": dtype,
    }


def _show(opened: Opened, comparison: str) -> None:
    """Prints the model, its example and how the two sides compare."""
    about = _about(opened, "")
    _shown.heading(about["model"], f" from {about['from']}")
    lines = [
        f"{about['parameters']:,} parameters, {size(about['bytes'])}",
        *filter(None, [opened.note]),
        f"largest difference to {comparison}",
    ]
    _shown.console().print(*lines, sep="\n")


def _table(ours: dict[str, float], theirs: dict[str, float], peer: str) -> Table:
    """Returns a table of times by step."""
    table = _shown.table(["step", "JAX", peer, f"JAX beside {peer}"], title="time", right=(1, 2, 3))
    for name, x in ours.items():
        cells = [name, duration(x)]
        if name in theirs:
            cells += [duration(theirs[name]), _shown.speed(x, theirs[name])]
        table.add_row(*cells)
    return table


def _write(opened: Opened, max_new_tokens: int) -> None:
    """Prints the text that the model writes, and how fast it does."""
    assert opened.ids is not None
    seen: list[float] = []
    print()
    began, count = time.time(), opened.ids.shape[1]
    room = _generate.room(opened.model.source.module, opened.ids, max_new_tokens)
    on_token = lambda _: seen.append(time.time())
    out = _generate.stream(
        opened.model, opened.tokenizer, opened.ids, on_token, max_new_tokens=room, **opened.media
    )
    count = out.shape[1] - opened.ids.shape[1]
    rate = count / (time.time() - began)
    if len(seen) > 3:
        rate = (len(seen) - 3) / (seen[-1] - seen[2])  # both programs are compiled by then
    _shown.console().print(
        f"\nfirst token {seen[1] - START:.1f} s after the start of the process; "
        f"{count} tokens, {rate:.0f} tokens/s after the first",
        style="dim",
        soft_wrap=True,
    )
