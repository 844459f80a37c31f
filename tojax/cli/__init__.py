"""The command line: one module per verb, each imported when it is called."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from tojax.cli import _reports, options
from tojax.cli.options import command

START = time.time()
app = typer.Typer(
    name="tojax",
    help="Run PyTorch, Hugging Face and TensorFlow models in JAX.",
    epilog="Start with: tojax run examples/tiny-llama --prompt 'def main('",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        from tojax import __version__

        print(f"tojax {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="print it and end"),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="compile anew, and keep nothing of it")
    ] = False,
) -> None:
    """Run PyTorch, Hugging Face, TensorFlow and ONNX models in JAX."""


@command(app)
def run(call: options.Run) -> None:
    """Load a model, convert it, compare it with its own framework, time both, and write text.

    FOLDER_OR_ID is a Hugging Face checkpoint, an adapter's folder, a SavedModel's folder or a
    .keras file, which is compared with TensorFlow, or an .onnx file, which is compared with
    onnxruntime; what model.save or tojax export wrote is timed alone. The difference is the largest
    one of any output, relative to that output's largest value. Exit code 1: the model cannot be
    served; 3: the two disagree.
    """
    from tojax.cli._source import is_saved

    if is_saved(call.source):
        from tojax.cli._saved import run as saved

        return saved(call.source, call.batch, call.json)
    from tojax.frontends import frontend_of

    frontend = frontend_of(call.source)
    if frontend == "tensorflow":
        from tojax.cli._run_tensorflow import run as verb
    elif frontend == "onnx":
        from tojax.cli._run_onnx import run as verb
    else:
        from tojax.cli._run import run as verb

    return verb(call, START)


@command(app)
def verify(call: options.Verify) -> None:
    """Compare a checkpoint in JAX with PyTorch, module by module; 64 bits are the judge.

    The verdict names the module that adds an error which rounding does not explain. Printed are
    what each module adds for the same inputs, how much of it the rounding of PyTorch explains, and
    what it inherits. Exit code 1: the model cannot be served; 3: some module is at fault.
    """
    from tojax.cli._verify import verify as verb

    verb(call)


@command(app)
def generate(call: options.Generate) -> None:
    """Continue a text; prints nothing but the text.

    FOLDER_OR_ID is a checkpoint, the folder of an adapter such as tojax finetune writes, or one
    that tojax export --generate wrote.
    """
    from tojax.cli._source import is_saved

    if is_saved(call.source):
        from tojax.cli._saved import generate as verb
    else:
        from tojax.cli._generate import generate as verb
    verb(call, START)


@command(app)
def inspect(call: options.Inspect) -> None:
    """Show parameters, sizes, dtypes and operators of a checkpoint without loading its weights.

    Of a folder that model.save or tojax export wrote: its calls, programs and weights. Of a
    SavedModel or a .keras file: signatures and variables; of an .onnx file: inputs, tensors and
    operators.
    Exit code 1: no checkpoint; 4: some operator of the model has no lowering.
    """
    from tojax.cli import _inspect_tensorflow
    from tojax.cli._source import is_saved
    from tojax.frontends import frontend_of

    if frontend_of(call.source) == "onnx":
        from tojax.cli._inspect_onnx import inspect as onnx

        return onnx(call.source, call.json)
    if _inspect_tensorflow.is_tensorflow(call.source):
        return _inspect_tensorflow.inspect(call.source, call.json)
    if is_saved(call.source):
        from tojax.cli._saved import inspect as saved

        return saved(call.source, call.json)
    from tojax.cli._inspect import inspect as verb

    return verb(call)


@command(app)
def explore(call: options.Explore) -> None:
    """Write one page about a model: its modules, their work, its weights, its division over a mesh.

    FOLDER_OR_ID is a checkpoint, an adapter's folder, a SavedModel's folder, a .keras file, an
    .onnx file, or what model.save wrote. FLOPs and bytes moved are those of the traced call of
    --batch x --length tokens; nothing is compiled or run. The page needs no network. Example:

    tojax explore examples/tiny-llama -o llama.html --mesh model=4 --plan tp

    Exit code 1: no model, or the plan does not fit the mesh.
    """
    from tojax.cli._explore import explore as verb

    verb(call)


@command(app)
def flax(call: options.Flax) -> None:
    """Write a PyTorch module as readable Flax source code, and compare it with torch.

    Example: tojax flax examples/tiny-llama -o llama.py. The file imports only jax and flax;
    load_params(model, FOLDER) fills it, in Linen variables = load_params(FOLDER).
    Exit code 1: it cannot be written, or the check fails; 3: outputs differ.
    """
    from tojax.cli._flax import flax as verb

    verb(call)


@command(app)
def finetune(call: options.Finetune) -> None:
    """Train a language model further on texts, by LoRA adapters; called again, it goes on.

    Example: tojax finetune examples/tiny-llama --data notes.txt --steps 300 --out tuned. Texts are
    packed into rows, one row of 20 is held out. The folder then holds an adapter that PEFT and
    tojax generate load, metrics.jsonl, and loss.png where matplotlib is installed.
    """
    with contextlib.nullcontext() if call.dry_run else _reports.resumable():
        from tojax.cli._finetune import finetune as verb

        verb(call)


@command(app)
def plan(call: options.Plan) -> None:
    """Tell what a model needs on chips that are not here: memory, FLOPs, communication, time.

    A config.json is enough: nothing is loaded or allocated. Without --train, --decode or --prefill
    it is a forward pass. Times are those of the chip's published rates: a step that takes longer
    is slower than the chip, none is faster. Example:

    tojax plan FOLDER --chips v6e-8 --decode --batch 32 --length 8192

    peak per device: fits or not, and what does. step time: the longest of compute, memory and
    interconnect, which work at the same time; the one that decides is named. utilization: what the
    chips do for the model, of what they could. docs/guides/planning.md has the formulas.
    """
    from tojax.cli._plan import plan as verb

    verb(call)


@command(app)
def export(call: options.Export) -> None:
    """Write a model as an artifact that runs without its framework, and compare it with the model.

    FOLDER_OR_ID is a Hugging Face checkpoint, a SavedModel's folder or a .keras file.

    jax: a folder for tojax.load, which needs JAX alone; with --generate 32 tojax.generate works,
    too. savedmodel: for TensorFlow, with derivatives. onnx: for onnxruntime (tojax[onnx]).

    Examples: tojax export examples/tiny-llama -o llama --batch 4 --length 128 --generate 32;
    tojax export model.keras -o model.onnx --format onnx --batch symbolic.

    Exit code 1: it cannot be written; 3: the artifact and the model disagree.
    """
    from tojax.cli._export import export as verb

    verb(call)


@command(app)
def weights(call: options.Weights) -> None:
    """Turn a JAX checkpoint into one for PyTorch, and print which array went where.

    Example: tojax weights run/checkpoints bert --model google/bert. Layers are matched by names and
    shapes, and turned into torch's layouts. With --jax and --input both models run with the new
    weights and must agree. TO gets the config and tokenizer of --model; an import path's module is
    written to model.safetensors.

    Exit code 1: something is missing, left over, ambiguous, or the models disagree; then nothing
    is written.
    """
    from tojax.cli._weights import weights as verb

    verb(call)


@command(app)
def ops(call: options.Ops) -> None:
    """List the torch operators: what serves each, and what torch's own suite says of it."""
    if call.onnx:
        from tojax.cli._ops_onnx import ops as verb
    elif call.tensorflow:
        from tojax.cli._ops_tensorflow import ops as verb
    else:
        from tojax.cli._ops import ops as verb

    verb(call.name, call.markdown, call.json)


@command(app)
def cache(call: options.Cache) -> None:
    """Show what is kept of compilations, and remove it with --clear.

    Every verb keeps what XLA compiles in the user's cache folder, so that a second call starts
    sooner; --no-cache, anywhere in the line, does without.
    """
    from tojax.cli._cache import cache as verb

    verb(call)


def main() -> None:
    """Runs the command line: errors in four lines and exit code 1, Ctrl-C quietly and 130."""
    from tojax.calls.host_memory import reuse_memory
    from tojax.cli import _cache

    _cache.use()
    reuse_memory()
    _reports.end_with(app)
