"""The end of a call of the command line: exit codes, and errors in four lines."""

from __future__ import annotations

import _thread
import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import typer

from anyjax.cli._codes import ExitCode
from anyjax.errors import missing


def end_with(app: Callable[[], object]) -> NoReturn:
    """Runs the command line, and ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.unraisablehook = _unraisable
    code = exit_code_of(app)
    if code == ExitCode.INTERRUPTED:
        stop()
    try:
        sys.stdout.flush()
    except OSError as error:  # a full disk; the unwritten output is dropped
        code = code or print_error(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def stop() -> NoReturn:
    """Ends the process at once: JAX crashes in the interpreter's shutdown while threads compile."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(ExitCode.INTERRUPTED)


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Prints at Ctrl-C that the same call resumes the run."""
    try:
        yield
    except KeyboardInterrupt:
        typer.secho("stopped; run it again to go on", err=True)
        raise


def _unraisable(hook_args: sys.UnraisableHookArgs) -> None:
    """Raises Ctrl-C again if it came inside of a callback of Python (JAX's part of the
    garbage collection): there it would be printed and forgotten.
    """
    if not isinstance(hook_args.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(hook_args)
        return
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


def exit_code_of(run: Callable[[], object]) -> int | str | None:
    """Runs a function, prints its error, and returns the exit code."""
    try:
        run()
    except SystemExit as ended:
        return ended.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe
        return ExitCode.FAILED
    except Exception as error:
        return print_error(error)
    return ExitCode.OK


def print_error(error: Exception) -> int:
    """Prints an error in four lines; one that is no user's mistake is raised."""
    from anyjax.errors import AnyjaxError

    if isinstance(error, ImportError) and not isinstance(error, AnyjaxError):
        error = missing(error, " ".join(["anyjax", *sys.argv[1:2]]))
    if not isinstance(error, (AnyjaxError, OSError)):
        raise error
    shown = error if isinstance(error, AnyjaxError) else _of_system(error)
    has_color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    typer.secho(f"error: {shown}", err=True, fg=typer.colors.RED if has_color else None)
    return ExitCode.FAILED


def _of_system(error: OSError) -> Exception:
    """Returns an error of the system as one of four lines."""
    from anyjax.errors import AnyjaxError

    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return AnyjaxError(
        error.strerror or str(error),
        where=str(error.filename or "standard output, or a file that is written"),
        why=f"the system refuses it: {errno.errorcode.get(error.errno or 0, 'no code')}",
        do="free some space, or write elsewhere"
        if full
        else "look at the path and its permissions",
    )
