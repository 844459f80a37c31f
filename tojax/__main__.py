"""``python -m tojax``, and the entry point of the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line, or says which package it needs."""
    try:
        from tojax.cli import main as run
    except ImportError as error:
        from tojax.errors import missing

        explained = missing(error)
        if explained is error:
            raise
        print(f"error: {explained}", file=sys.stderr)
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
