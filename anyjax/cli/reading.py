"""The verbs that run a model, and those that look inside."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from anyjax.cli.options import (
    DEMO,
    LOOK,
    PROMPT,
    RUN,
    Adapter,
    Dtype,
    Html,
    Json,
    Markdown,
    NewTokens,
    Pickle,
    Pictures,
    Sounds,
    Source,
    Task,
    Verb,
    command,
)


@command(
    RUN,
    f"anyjax run {DEMO} --prompt 'def main('",
    f"anyjax run {DEMO} --dtype bfloat16 --json",
)
class Run(Verb):
    """Convert a model, compare it with its framework, time both.

    A language model then continues the prompt.

    FOLDER_OR_ID is a Hugging Face checkpoint, an adapter's folder, a SavedModel's folder or a
    .keras file, which is compared with TensorFlow, or an .onnx file, which is compared with
    onnxruntime; what model.save or anyjax export wrote is timed alone. The difference is the
    largest one of any output, relative to that output's largest value. Exit code 3: the two
    disagree.
    """

    source: Source
    prompt: Annotated[str, PROMPT] = ""
    image: Pictures = None
    audio: Sounds = None
    max_new_tokens: NewTokens = 96
    adapter: Adapter = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    signature: Annotated[
        str | None, Option(help="signature of a SavedModel; by default the one it serves")
    ] = None
    batch: Annotated[int, Option(min=1, help="rows of the call")] = 1
    json: Json = False


@command(
    RUN,
    f"anyjax generate {DEMO} --prompt 'def main('",
    f"anyjax generate {DEMO} -p import --temperature 0.8 --seed 1",
    f"echo 'def main(' | anyjax generate {DEMO} -p - --json",
)
class Generate(Verb):
    """Continue a text, and print nothing else.

    FOLDER_OR_ID is a checkpoint, the folder of an adapter such as anyjax finetune writes, or one
    that anyjax export --generate wrote. Or it is the folder of a pipeline of diffusers, whose
    picture, video or sound is written to a file (anyjax[diffusers]).
    """

    source: Source
    prompt: Annotated[str | None, PROMPT] = None
    image: Pictures = None
    audio: Sounds = None
    max_new_tokens: NewTokens = 96
    temperature: Annotated[
        float | None, Option(min=0.0, help="draw tokens; the likeliest one by default")
    ] = None
    seed: Annotated[int, Option(help="of the draws")] = 0
    output: Annotated[
        str | None, Option("--output", "-o", help="file for the picture of a pipeline")
    ] = None
    steps: Annotated[int | None, Option(min=1, help="of a pipeline; by default its own")] = None
    adapter: Adapter = None
    tokenizer: Annotated[
        str | None, Option(help="folder of a tokenizer; the model's own by default")
    ] = None
    dtype: Dtype = None
    allow_pickle: Pickle = False
    profile: Annotated[
        bool, Option("--profile", help="print where the time to the first token went")
    ] = False
    json: Json = False

    def sampling(self) -> dict[str, Any]:
        """Returns the sampling arguments of ``anyjax.generate``, none for the likeliest tokens."""
        if not self.temperature:
            return {}
        import jax

        key = jax.random.key(self.seed)
        return {"do_sample": True, "temperature": self.temperature, "rng": key}


@command(
    LOOK,
    f"anyjax inspect {DEMO}",
    f"anyjax inspect {DEMO} --json",
)
class Inspect(Verb):
    """Show parameters, sizes, dtypes and operators of a model.

    Of a checkpoint no weights are loaded.
    Of a folder that model.save or anyjax export wrote: its calls, programs and weights. Of a
    SavedModel or a .keras file: signatures and variables; of an .onnx file: inputs, tensors and
    operators. Exit code 4: some operator of the model has no lowering.
    """

    source: Source
    adapter: Adapter = None
    task: Task = None
    json: Json = False


@command(
    LOOK,
    f"anyjax explore {DEMO} -o llama.html",
    f"anyjax explore {DEMO} -o llama.html --mesh model=4 --plan tp",
    f"anyjax explore {DEMO} --no-weights --json",
)
class Explore(Verb):
    """Write a page about a model: modules, work, weights, sharding.

    FOLDER_OR_ID is a checkpoint, an adapter's folder, a SavedModel's folder, a .keras file, an
    .onnx file, or what model.save wrote. FLOPs and bytes moved are those of the traced call of
    --batch x --length tokens; nothing is compiled or run. The page needs no network.
    """

    source: Source
    output: Annotated[
        str | None,
        Option("--output", "-o", help="page to write; explore.html, none with --json"),
    ] = None
    mesh: Annotated[str | None, Option(help="also divide over these axes, as data=2,model=4")] = (
        None
    )
    plan: Annotated[str, Option(help="of the division: tp, fsdp, tp+fsdp")] = "tp"
    batch: Annotated[int, Option(min=1, help="rows of the call")] = 1
    length: Annotated[int, Option(min=1, help="tokens of each row")] = 16
    weights: Annotated[
        bool, Option(help="read the weights, for their figures; else the config alone")
    ] = True
    open: Annotated[bool, Option("--open", help="show the page in a browser")] = False
    adapter: Adapter = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    json: Json = False


@command(
    LOOK,
    f"anyjax verify {DEMO}",
    f"anyjax verify {DEMO} --gradients --html report.html",
    f"anyjax verify {DEMO} --operators 'layers.3.mlp' --json",
)
class Verify(Verb):
    """Compare a checkpoint in JAX with PyTorch, module by module.

    The verdict names the module that adds an error which rounding does not explain; a run in 64
    bits is the judge. The table shows what each module adds for the same inputs, how much of it
    the rounding of PyTorch explains, and what it inherits. Exit code 3: some module is at fault.
    """

    source: Source
    gradients: Annotated[
        bool, Option("--gradients", help="also compare gradients of params and inputs")
    ] = False
    prompt: Annotated[
        str, Option("--prompt", "-p", help="text to compare on; - reads standard input")
    ] = ""
    image: Pictures = None
    audio: Sounds = None
    operators: Annotated[
        str | None,
        Option(help="also the operators of modules whose paths match, as layers.3.mlp"),
    ] = None
    html: Html = None
    reproduce: Annotated[
        str | None, Option(help="write a folder that reproduces a fault by itself")
    ] = None
    adapter: Adapter = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    json: Json = False


@command(
    LOOK,
    "anyjax ops linear",
    "anyjax ops --tensorflow MatMul",
    "anyjax ops --onnx Conv --json",
)
class Ops(Verb):
    """List the operators and what serves each of them.

    Of PyTorch by default, with the results of PyTorch's own test cases; --tensorflow and --onnx
    list theirs. A few operators are shown with their schemas. Exit code 2: no operator has the
    name.
    """

    name: Annotated[str, Argument(help="part of an operator's name; all by default")] = ""
    markdown: Markdown = False
    tensorflow: Annotated[bool, Option("--tensorflow", help="TensorFlow's instead")] = False
    onnx: Annotated[bool, Option("--onnx", help="ONNX's instead")] = False
    json: Json = False
