"""The command line: one module per verb, each imported when it is called."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from anyjax.cli import _reports, options
from anyjax.cli._help import Group
from anyjax.cli.options import command

START = time.time()
RUN, LOOK, WRITE, TRAIN, PLAN, KEEP = (
    "Run", "Look inside", "Convert and write", "Train", "Plan", "Housekeeping",
)  # fmt: skip
DEMO = "examples/tiny-llama"
app = typer.Typer(
    name="anyjax",
    cls=Group,
    help="Run PyTorch, Hugging Face, TensorFlow and ONNX models in JAX.",
    epilog=f"Start with: anyjax run {DEMO} --prompt 'def main(', or any hub id",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        from anyjax import __version__

        print(f"anyjax {__version__}")
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


@command(
    app, RUN,
    f"anyjax run {DEMO} --prompt 'def main('",
    f"anyjax run {DEMO} --dtype bfloat16 --json",
)  # fmt: skip
def run(call: options.Run) -> None:
    """Convert a model, compare it with its framework, time both.

    A language model then continues the prompt.

    FOLDER_OR_ID is a Hugging Face checkpoint, an adapter's folder, a SavedModel's folder or a
    .keras file, which is compared with TensorFlow, or an .onnx file, which is compared with
    onnxruntime; what model.save or anyjax export wrote is timed alone. The difference is the
    largest one of any output, relative to that output's largest value. Exit code 3: the two
    disagree.
    """
    from anyjax.cli._source import is_saved

    if is_saved(call.source):
        from anyjax.cli._saved import run as saved

        return saved(call.source, call.batch, call.json)
    from anyjax.frontends import frontend_of

    frontend = frontend_of(call.source)
    if frontend == "tensorflow":
        from anyjax.cli._run_tensorflow import run as verb
    elif frontend == "onnx":
        from anyjax.cli._run_onnx import run as verb
    else:
        from anyjax.cli._run import run as verb

    return verb(call, START)


@command(
    app, RUN,
    f"anyjax generate {DEMO} --prompt 'def main('",
    f"anyjax generate {DEMO} -p import --temperature 0.8 --seed 1",
    f"echo 'def main(' | anyjax generate {DEMO} -p - --json",
)  # fmt: skip
def generate(call: options.Generate) -> None:
    """Continue a text, and print nothing else.

    FOLDER_OR_ID is a checkpoint, the folder of an adapter such as anyjax finetune writes, or one
    that anyjax export --generate wrote.
    """
    from anyjax.cli._source import is_saved

    if is_saved(call.source):
        from anyjax.cli._saved import generate as verb
    else:
        from anyjax.cli._generate import generate as verb
    verb(call, START)


@command(
    app, LOOK,
    f"anyjax inspect {DEMO}",
    f"anyjax inspect {DEMO} --json",
)  # fmt: skip
def inspect(call: options.Inspect) -> None:
    """Show parameters, sizes, dtypes and operators of a model.

    Of a checkpoint no weights are loaded.
    Of a folder that model.save or anyjax export wrote: its calls, programs and weights. Of a
    SavedModel or a .keras file: signatures and variables; of an .onnx file: inputs, tensors and
    operators. Exit code 4: some operator of the model has no lowering.
    """
    from anyjax.cli import _inspect_tensorflow
    from anyjax.cli._source import is_saved
    from anyjax.frontends import frontend_of

    if frontend_of(call.source) == "onnx":
        from anyjax.cli._inspect_onnx import inspect as onnx

        return onnx(call.source, call.json)
    if _inspect_tensorflow.is_tensorflow(call.source):
        return _inspect_tensorflow.inspect(call.source, call.json)
    if is_saved(call.source):
        from anyjax.cli._saved import inspect as saved

        return saved(call.source, call.json)
    from anyjax.cli._inspect import inspect as verb

    return verb(call)


@command(
    app, LOOK,
    f"anyjax explore {DEMO} -o llama.html",
    f"anyjax explore {DEMO} -o llama.html --mesh model=4 --plan tp",
    f"anyjax explore {DEMO} --no-weights --json",
)  # fmt: skip
def explore(call: options.Explore) -> None:
    """Write a page about a model: modules, work, weights, sharding.

    FOLDER_OR_ID is a checkpoint, an adapter's folder, a SavedModel's folder, a .keras file, an
    .onnx file, or what model.save wrote. FLOPs and bytes moved are those of the traced call of
    --batch x --length tokens; nothing is compiled or run. The page needs no network.
    """
    from anyjax.cli._explore import explore as verb

    verb(call)


@command(
    app, LOOK,
    f"anyjax verify {DEMO}",
    f"anyjax verify {DEMO} --gradients --html report.html",
    f"anyjax verify {DEMO} --operators 'layers.3.mlp' --json",
)  # fmt: skip
def verify(call: options.Verify) -> None:
    """Compare a checkpoint in JAX with PyTorch, module by module.

    The verdict names the module that adds an error which rounding does not explain; a run in 64
    bits is the judge. The table shows what each module adds for the same inputs, how much of it
    the rounding of PyTorch explains, and what it inherits. Exit code 3: some module is at fault.
    """
    from anyjax.cli._verify import verify as verb

    verb(call)


@command(
    app, LOOK,
    "anyjax ops linear",
    "anyjax ops --tensorflow MatMul",
    "anyjax ops --onnx Conv --json",
)  # fmt: skip
def ops(call: options.Ops) -> None:
    """List the operators and what serves each of them.

    Of PyTorch by default, with the results of PyTorch's own test cases; --tensorflow and --onnx
    list theirs. A few operators are shown with their schemas. Exit code 2: no operator has the
    name.
    """
    if call.onnx:
        from anyjax.cli._ops_onnx import ops as verb
    elif call.tensorflow:
        from anyjax.cli._ops_tensorflow import ops as verb
    else:
        from anyjax.cli._ops import ops as verb

    verb(call.name, call.markdown, call.json)


@command(
    app, WRITE,
    f"anyjax export {DEMO} -o llama --generate 32",
    f"anyjax export {DEMO} -o any --batch symbolic --length symbolic",
    f"anyjax export {DEMO} -o llama.onnx --format onnx",
)  # fmt: skip
def export(call: options.Export) -> None:
    """Write a model for JAX, TensorFlow or onnxruntime alone.

    What is written runs without the model's framework, and is compared with the model.
    FOLDER_OR_ID is a Hugging Face checkpoint, a SavedModel's folder or a .keras file.

    jax: a folder for anyjax.load, which needs JAX alone; with --generate 32 anyjax.generate works,
    too. savedmodel: for TensorFlow, with derivatives. onnx: for onnxruntime (anyjax[onnx]).

    Exit code 3: what is written and the model disagree.
    """
    from anyjax.cli._export import export as verb

    verb(call)


@command(
    app, WRITE,
    f"anyjax flax {DEMO} -o llama.py",
    f"anyjax flax {DEMO} --style linen -o llama_linen.py",
    "anyjax flax examples.torch_gpt:GPT --input 2x64:int -o gpt.py",
)  # fmt: skip
def flax(call: options.Flax) -> None:
    """Write a PyTorch module as readable Flax source code.

    The file imports only jax and flax; load_params(model, FOLDER) fills it, in Linen
    variables = load_params(FOLDER). Exit code 3: its outputs differ from PyTorch's.
    """
    from anyjax.cli._flax import flax as verb

    verb(call)


@command(
    app, WRITE,
    f"anyjax export {DEMO} -o llama",
    f"anyjax weights llama/params.safetensors llama-pt --model {DEMO}",
)  # fmt: skip
def weights(call: options.Weights) -> None:
    """Turn a JAX checkpoint into one for PyTorch.

    Layers are matched by names and shapes, and turned into torch's layouts; every match is
    printed. With --jax and --input both models run with the new weights and must agree. TO gets
    the config and tokenizer of --model; an import path's module is written to model.safetensors.

    Where something is missing, left over or ambiguous, or the models disagree, nothing is written.
    """
    from anyjax.cli._weights import weights as verb

    verb(call)


@command(
    app, TRAIN,
    f"anyjax finetune {DEMO} --data README.md --out tuned --dry-run",
    f"anyjax finetune {DEMO} --data README.md --out tuned --steps 20",
    "anyjax generate tuned -p 'import'",
)  # fmt: skip
def finetune(call: options.Finetune) -> None:
    """Train a language model further on texts, by LoRA adapters.

    Called again, it goes on where it was. Texts are packed into rows, one row of 20 is held out.
    The folder then holds an adapter that PEFT and anyjax generate load, metrics.jsonl, and loss.png
    where matplotlib is installed.
    """
    with contextlib.nullcontext() if call.dry_run else _reports.resumable():
        from anyjax.cli._finetune import finetune as verb

        verb(call)


@command(
    app, PLAN,
    f"anyjax plan {DEMO} --chips v6e-8 --length 128",
    f"anyjax plan {DEMO} --chips h100-8 --train --length 512 --batch 64",
    f"anyjax plan {DEMO} --chips v5p-16 --decode --length 512 --json",
)  # fmt: skip
def plan(call: options.Plan) -> None:
    """Estimate memory, communication and time on other chips.

    A config.json is enough: nothing is loaded or allocated. Without --train, --decode or --prefill
    it is a forward pass. Times are those of the chip's published rates: a step that takes longer
    is slower than the chip, none is faster.

    peak per device: fits or not, and what does. step time: the longest of compute, memory and
    interconnect, which work at the same time; the one that decides is named. utilization: what the
    chips do for the model, of what they could. docs/guides/planning.md has the formulas.
    """
    from anyjax.cli._plan import plan as verb

    verb(call)


@command(app, KEEP, "anyjax doctor", "anyjax doctor --imports", "anyjax doctor --json")
def doctor(call: options.Doctor) -> None:
    """Show versions, devices and caches, and what works here.

    For each feature that does not work it prints the line that installs what is missing, and
    beneath it the known traps of this machine. Packages are looked up, not imported; --imports
    imports each of them, which takes a while and finds those that are broken. Exit code 1: the
    core does not work.
    """
    from anyjax.cli._doctor import doctor as verb

    verb(call)


@command(app, KEEP, "anyjax explain MissingRng", "anyjax explain --list")
def explain(call: options.Explain) -> None:
    """Show what an error means, and the ways out of it.

    The last line of every message names its page. Pages are part of anyjax: no network is needed.
    """
    from anyjax.cli._explain import explain as verb

    verb(call)


@command(
    app, KEEP,
    "anyjax cache",
    "anyjax cache --clear",
)  # fmt: skip
def cache(call: options.Cache) -> None:
    """Show the compiled programs that are kept, or remove them.

    Every verb keeps what XLA compiles in the user's cache folder, so that a second call starts
    sooner; --no-cache, anywhere in the line, does without.
    """
    from anyjax.cli._cache import cache as verb

    verb(call)


def main() -> None:
    """Runs the command line: errors in four lines and exit code 1, Ctrl-C quietly and 130."""
    from anyjax.calls.host_memory import reuse_memory
    from anyjax.cli import _cache

    _cache.use()
    reuse_memory()
    _reports.end_with(app)
