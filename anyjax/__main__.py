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
anyjax.from_stablehlo(file) reads compiled programs. {site}/start.html
"""


def main() -> None:
    """Runs the command line, or prints which package it needs."""
    try:
        from anyjax.cli import main as run
    except ImportError as error:
        _explain(error)
    else:
        run()


def _explain(error: ImportError) -> None:
    """Prints help or the version without the command line's packages, or the error."""
    from anyjax import __version__, errors

    explained = errors.missing(error)
    if explained is error:
        raise error
    if sys.argv[1:] in ([], ["--help"]):
        print(PLAIN.format(site=errors.SITE), end="")
    elif sys.argv[1:] == ["--version"]:
        print(f"anyjax {__version__}")
    else:
        print(f"error: {explained}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
