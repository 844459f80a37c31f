"""The command line: one module per verb, each imported when it is called."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from tojax.cli import _reports

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
Source = Annotated[
    str,
    typer.Argument(metavar="FOLDER_OR_ID", help="checkpoint folder, or hub id such as owner/name"),
]
Adapter = Annotated[
    str | None, typer.Option(help="folder or hub id of an adapter (LoRA) to put on the model")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]
Prompt = Annotated[
    str, typer.Option("--prompt", "-p", help="text to continue; - reads standard input")
]
NewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=1, help="how many tokens to add at most")
]
Dtype = Annotated[
    str | None, typer.Option(help="float32, bfloat16 or float16; the checkpoint's own by default")
]
Task = Annotated[
    str | None, typer.Option(help="head to load: the X in transformers' AutoModelForX")
]
Pickle = Annotated[
    bool, typer.Option("--allow-pickle", help="also load pickled weights (they can run any code)")
]
Signature = Annotated[
    str | None, typer.Option(help="signature of a SavedModel; the one that it serves by default")
]
Batch = Annotated[int, typer.Option(min=1, help="size of unknown dimensions (TensorFlow models)")]


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
) -> None:
    """Run PyTorch, Hugging Face and TensorFlow models in JAX."""


@app.command()
def run(
    source: Source,
    prompt: Prompt = "",
    max_new_tokens: NewTokens = 96,
    adapter: Adapter = None,
    dtype: Dtype = None,
    task: Task = None,
    allow_pickle: Pickle = False,
    signature: Signature = None,
    batch: Batch = 1,
    json: Json = False,
):
    """Load a model, convert it, compare it with its own framework, time both, and write text.

    FOLDER_OR_ID is a Hugging Face checkpoint, an adapter's folder, or a SavedModel's folder or a
    .keras file, which is compared with TensorFlow; what model.save or tojax export wrote is timed
    alone. The difference is the largest one of any output, relative to that output's largest
    value. Exit code 1: the model cannot be served; 3: the two disagree.
    """
    from tojax.cli._source import is_saved

    if is_saved(source):
        from tojax.cli._saved import run as saved

        return saved(source, batch, json)
    from tojax.frontends import frontend_of

    if frontend_of(source) == "tensorflow":
        from tojax.cli._run_tensorflow import run as tensorflow

        return tensorflow(source, signature, batch, json, START)
    from tojax.cli._run import Options
    from tojax.cli._run import run as verb

    options = Options(
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        adapter=adapter,
        dtype=dtype,
        task=task,
        allow_pickle=allow_pickle,
        as_json=json,
        start=START,
    )
    return verb(source, options)


@app.command()
def generate(
    source: Source,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="text to continue; - reads standard input")
    ] = None,
    max_new_tokens: NewTokens = 96,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="draw tokens; the likeliest one by default")
    ] = None,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    adapter: Adapter = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="folder of a tokenizer; the model's own by default")
    ] = None,
    dtype: Dtype = None,
    allow_pickle: Pickle = False,
):
    """Continue a text; prints nothing but the text.

    FOLDER_OR_ID is a checkpoint, the folder of an adapter such as tojax finetune writes, or one
    that tojax export --generate wrote.
    """
    from tojax.cli._generate import Options
    from tojax.cli._source import is_saved

    if is_saved(source):
        from tojax.cli._saved import generate as verb
    else:
        from tojax.cli._generate import generate as verb
    options = Options(
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        adapter=adapter,
        tokenizer=tokenizer,
        dtype=dtype,
        allow_pickle=allow_pickle,
    )
    verb(source, options)


@app.command()
def inspect(source: Source, adapter: Adapter = None, task: Task = None, json: Json = False):
    """Show parameters, sizes, dtypes and operators of a checkpoint without loading its weights.

    Of a folder that model.save or tojax export wrote: its calls, programs and weights. Of a
    SavedModel or a .keras file: signatures and variables.
    Exit code 1: no checkpoint; 4: some operator of the model has no lowering.
    """
    from tojax.cli import _inspect_tensorflow

    if _inspect_tensorflow.is_tensorflow(source):
        return _inspect_tensorflow.inspect(source, json)
    from tojax.cli._inspect import inspect as verb

    return verb(source, adapter, task, json)


@app.command()
def flax(
    source: Annotated[
        str,
        typer.Argument(metavar="FOLDER_OR_IMPORT_PATH", help="checkpoint, or package.module:Class"),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="file to write; - prints it")] = "-",
    input: Annotated[
        list[str] | None, typer.Option(help="shape of an input, as 2x3x32x32 or 2x16:int")
    ] = None,
    task: Task = None,
    style: Annotated[str, typer.Option(help="nnx or linen")] = "nnx",
    check: Annotated[
        bool,
        typer.Option(
            help="run the file beside the module: values, gradients, another batch and length, "
            "training mode; what differs is an error and writes no file"
        ),
    ] = True,
):
    """Write a PyTorch module as readable Flax source code, and compare it with torch.

    Example: tojax flax examples/tiny-llama -o llama.py. The file imports only jax and flax;
    load_params(model, FOLDER) fills it, in Linen variables = load_params(FOLDER).
    Exit code 1: it cannot be written, or the check fails; 3: outputs differ.
    """
    from tojax.cli._flax import flax as verb

    verb(source, output, input or [], task, style, check)


@app.command()
def finetune(
    source: Source,
    data: Annotated[str, typer.Option(help="text file, or .jsonl with text or prompt, completion")],
    out: Annotated[str, typer.Option(help="folder for adapter, metrics and checkpoints")],
    lora: Annotated[int, typer.Option(min=1, help="rank of the adapters")] = 8,
    dora: Annotated[bool, typer.Option("--dora", help="also train the lengths of rows")] = False,
    targets: Annotated[
        str | None, typer.Option(help="regular expression of weights; all linear layers by default")
    ] = None,
    quantize: Annotated[
        str | None, typer.Option(help="hold the adapted weights as int8, int4 or nf4")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="how many in all")] = 300,
    batch: Annotated[int, typer.Option(min=1, help="rows of a step")] = 8,
    length: Annotated[int, typer.Option(min=2, help="tokens of a row")] = 256,
    rate: Annotated[float, typer.Option(min=0.0, help="highest learning rate")] = 1e-3,
    every: Annotated[int, typer.Option(min=1, help="steps between evaluations")] = 50,
    seed: Annotated[int, typer.Option(help="of adapters, order and dropout")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only tell what it would do, and the memory")
    ] = False,
):
    """Train a language model further on texts, by LoRA adapters; called again, it goes on.

    Example: tojax finetune examples/tiny-llama --data notes.txt --steps 300 --out tuned. Texts are
    packed into rows, one row of 20 is held out. The folder then holds an adapter that PEFT and
    tojax generate load, metrics.jsonl, and loss.png where matplotlib is installed.
    """
    with contextlib.nullcontext() if dry_run else _reports.resumable():
        from tojax.cli._finetune import Options
        from tojax.cli._finetune import finetune as verb

        options = Options(
            data=data,
            rank=lora,
            dora=dora,
            targets=targets,
            quantize=quantize,
            steps=steps,
            batch=batch,
            length=length,
            rate=rate,
            every=every,
            seed=seed,
            out=out,
            dry_run=dry_run,
        )
        verb(source, options)


@app.command()
def plan(
    source: Source,
    chips: Annotated[str, typer.Option(help="chip and number, as v6e-8, v5p-64, h100-16, cpu-8")],
    batch: Annotated[int, typer.Option(min=1, help="rows, of all chips together")] = 1,
    length: Annotated[int, typer.Option(min=1, help="tokens of a row; of a cache")] = 2048,
    plan: Annotated[
        str | None, typer.Option(help="tp, fsdp or tp+fsdp; fsdp to train, else tp, by default")
    ] = None,
    mesh: Annotated[str | None, typer.Option(help="axes and sizes, as data=2,model=4")] = None,
    train: Annotated[bool, typer.Option("--train", help="a training step")] = False,
    decode: Annotated[bool, typer.Option("--decode", help="one token for each row")] = False,
    prefill: Annotated[bool, typer.Option("--prefill", help="prompts into a cache")] = False,
    dtype: Dtype = None,
    optimizer: Annotated[str, typer.Option(help="adamw, adafactor, sgd or momentum")] = "adamw",
    remat: Annotated[
        bool, typer.Option("--remat", help="compute layers again for the gradient")
    ] = False,
    quantize: Annotated[
        str | None, typer.Option(help="hold the weights as int8, fp8, int4 or nf4")
    ] = None,
    task: Task = None,
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            help="also compile for as many virtual CPU devices; by default for cpu alone",
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
    html: Annotated[str | None, typer.Option(help="also write a page to this file")] = None,
    json: Json = False,
):
    """Tell what a model needs on chips that are not here: memory, FLOPs, communication, time.

    A config.json is enough: nothing is loaded or allocated. Without --train, --decode or --prefill
    it is a forward pass. Times are those of the chip's published rates: a step that takes longer
    is slower than the chip, none is faster. Example:

    tojax plan FOLDER --chips v6e-8 --decode --batch 32 --length 8192

    peak per device: fits or not, and what does. step time: the longest of compute, memory and
    interconnect, which work at the same time; the one that decides is named. utilization: what the
    chips do for the model, of what they could. docs/scaling.md has the formulas.
    """
    from tojax.cli._plan import Options, one_of
    from tojax.cli._plan import plan as verb

    what = one_of(train=train, decode=decode, prefill=prefill)
    options = Options(
        chips=chips, what=what, batch=batch, length=length, plan=plan, mesh=mesh, dtype=dtype,
        optimizer=optimizer, remat=remat, quantize=quantize, task=task, compile=compile,
        markdown=markdown, as_json=json, html=html,
    )  # fmt: skip
    verb(source, options)


@app.command()
def export(
    source: Source,
    out: Annotated[
        str, typer.Option("--output", "-o", help="folder to write, for onnx a file such as m.onnx")
    ],
    format: Annotated[str, typer.Option(help="jax, savedmodel or onnx")] = "jax",
    batch: Annotated[str, typer.Option(help="rows of a call: a number, or symbolic for any")] = "1",
    length: Annotated[str, typer.Option(help="tokens of a row: a number, or symbolic")] = "16",
    generate: Annotated[
        int, typer.Option(min=0, help="also the decoding loop, for so many new tokens (jax)")
    ] = 0,
    sample: Annotated[
        bool, typer.Option("--sample", help="draw tokens by a key instead of the likeliest")
    ] = False,
    platforms: Annotated[str, typer.Option(help="what it runs on, with commas")] = "cpu,cuda,tpu",
    roll: Annotated[bool, typer.Option("--roll", help="repeated layers as one loop")] = False,
    quantize: Annotated[str | None, typer.Option(help="weights as int8, int4, nf4 or fp8")] = None,
    dtype: Dtype = None,
    task: Task = None,
    allow_pickle: Pickle = False,
):
    """Write a model as an artifact that runs without its framework, and compare it with the model.

    FOLDER_OR_ID is a Hugging Face checkpoint, a SavedModel's folder or a .keras file.

    jax: a folder for tojax.load, which needs JAX alone; with --generate 32 tojax.generate works,
    too. savedmodel: for TensorFlow, with derivatives. onnx: for onnxruntime (tojax[onnx]).

    Examples: tojax export examples/tiny-llama -o llama --batch 4 --length 128 --generate 32;
    tojax export model.keras -o model.onnx --format onnx --batch symbolic.

    Exit code 1: it cannot be written; 3: the artifact and the model disagree.
    """
    from tojax.cli._export import Options
    from tojax.cli._export import export as verb

    options = Options(
        out=out,
        format=format,
        batch=batch,
        length=length,
        generate=generate,
        sample=sample,
        platforms=platforms,
        roll=roll,
        quantize=quantize,
        dtype=dtype,
        task=task,
        allow_pickle=allow_pickle,
    )
    verb(source, options)


@app.command()
def ops(
    name: Annotated[str, typer.Argument(help="part of an operator's name; all by default")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
    tensorflow: Annotated[bool, typer.Option("--tensorflow", help="TensorFlow's instead")] = False,
    json: Json = False,
):
    """List the torch operators: what serves each, and what torch's own suite says of it."""
    if tensorflow:
        from tojax.cli._ops_tensorflow import ops as verb
    else:
        from tojax.cli._ops import ops as verb

    verb(name, markdown, json)


def main() -> None:
    """Runs the command line: errors in four lines and exit code 1, Ctrl-C quietly and 130."""
    _reports.end_with(app)
