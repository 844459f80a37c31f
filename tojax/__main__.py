"""``python -m tojax``, and the entry point of the command line."""

from __future__ import annotations

import sys

# What the command prints without the packages of the extra `cli`.
PLAIN = """\
Usage: tojax VERB [OPTIONS]

Run PyTorch, Hugging Face, TensorFlow and ONNX models in JAX. The verbs need a few packages:

  pip install "tojax[cli]"       the command line
  pip install "tojax[hf,cli]"    with Hugging Face checkpoints

Without them there is `import tojax`: tojax.load(folder) runs what model.save wrote, and
tojax.from_stablehlo(file) reads compiled programs. {site}/start.html
"""


def main() -> None:
    """Runs the command line, or prints which package it needs."""
    try:
        from tojax.cli import main as run
    except ImportError as error:
        _explain(error)
    else:
        run()


def _explain(error: ImportError) -> None:
    """Prints help or the version without the command line's packages, or the error."""
    from tojax import __version__, errors

    explained = errors.missing(error)
    if explained is error:
        raise error
    if sys.argv[1:] in ([], ["--help"]):
        print(PLAIN.format(site=errors.SITE), end="")
    elif sys.argv[1:] == ["--version"]:
        print(f"tojax {__version__}")
    else:
        print(f"error: {explained}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
