"""How a call of the command line ends: exit codes, and mistakes in four lines."""

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

from tojax.errors import missing

INTERRUPTED = 130  # the exit code of a process that Ctrl-C ended, 128 + SIGINT


def end_with(app: Callable[[], object]) -> NoReturn:
    """Runs the command line, and ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.unraisablehook = _unraisable
    code = reported(app)
    if code == INTERRUPTED:
        stop()
    try:
        sys.stdout.flush()
    except OSError as error:  # a full disk; what is left goes nowhere
        code = code or told(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def stop() -> NoReturn:
    """Ends the process at once: JAX's part of the interpreter's own end crashes where threads still
    compile.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Says at Ctrl-C that the same call goes on where this one was."""
    try:
        yield
    except KeyboardInterrupt:
        typer.secho("stopped; run it again to go on", err=True)
        raise


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    """Repeats Ctrl-C where it came inside of what Python calls on its own (JAX's part of the
    garbage collection): there it would be told and forgotten.
    """
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)
        return
    again = threading.Timer(0.05, _thread.interrupt_main)
    again.daemon = True
    again.start()


def reported(run: Callable[[], object]) -> int | str | None:
    """Runs it; the exit code, after what there is to say."""
    try:
        run()
    except SystemExit as ended:
        return ended.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read has enough
        return 1
    except Exception as error:
        return told(error)
    return 0


def told(error: Exception) -> int:
    """Says in four lines what went wrong; what is no mistake of a user's is raised."""
    from tojax.errors import TojaxError

    if isinstance(error, ImportError) and not isinstance(error, TojaxError):
        error = missing(error, next(iter(sys.argv[1:]), ""))
    if not isinstance(error, (TojaxError, OSError)):
        raise error
    said = error if isinstance(error, TojaxError) else _of_system(error)
    red = typer.colors.RED if sys.stderr.isatty() else None
    typer.secho(f"error: {said}", err=True, fg=red)
    return 1


def _of_system(error: OSError) -> Exception:
    """What the system refuses, in four lines."""
    from tojax.errors import TojaxError

    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return TojaxError(
        error.strerror or str(error),
        where=str(error.filename or "standard output, or a file that is written"),
        why=f"the system refuses it: {errno.errorcode.get(error.errno or 0, 'no code')}",
        do="free some space, or write elsewhere"
        if full
        else "look at the path and its permissions",
    )
