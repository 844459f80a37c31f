"""``python -m anyjax``, and the entry point of the command line."""

from __future__ import annotations

import sys

# What the command prints without the packages of the extra `cli`.
PLAIN = """\
Usage: anyjax VERB [OPTIONS]

Run PyTorch, Hugging Face, TensorFlow and ONNX models in JAX. The verbs need a few packages:

  pip install "anyjax[cli]"       the command line
  pip install "anyjax[hf,cli]"    with Hugging Face checkpoints

Without them there is `import anyjax`: anyjax.load(folder) runs what model.save wrote, and
anyjax.from_stablehlo(file) reads compiled programs. One verb works: anyjax explain MissingRng
shows the page of an error.
"""


def main() -> None:
    """Runs the command line, or prints which package it needs."""
    try:
        from anyjax.cli import main as run
    except ImportError as error:
        _without_packages(error)
    else:
        run()


def _without_packages(error: ImportError) -> None:
    """Prints help, the version or an error's page, which need no packages; else what is missing."""
    from anyjax import __version__, errors

    explained = errors.missing(error)
    if explained is error:
        raise error
    if sys.argv[1:] in ([], ["--help"]):
        print(PLAIN, end="")
    elif sys.argv[1:] == ["--version"]:
        print(f"anyjax {__version__}")
    elif len(sys.argv) == 3 and sys.argv[1] == "explain":
        _print_page(sys.argv[2])
    else:
        print(f"error: {explained}", file=sys.stderr)
        sys.exit(1)


def _print_page(name: str) -> None:
    from anyjax import errors, explanations

    try:
        if name == "--list":
            print(*(f"{name}: {text}" for name, text in explanations.summaries().items()), sep="\n")
        else:
            print(explanations.explanation(name))
    except errors.AnyjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
