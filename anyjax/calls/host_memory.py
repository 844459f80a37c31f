"""Memory of the host: what is freed stays with the process."""

from __future__ import annotations

import ctypes
import sys

# Of glibc's malloc.h, and their values: no threshold, one pool for all threads, pages by the dozen.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX, ARENA_MAX = -1, -2, -4, -8
SETTINGS = {ARENA_MAX: 1, MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26}


def reuse_memory() -> bool:
    """Keeps memory that is freed in this process, for what is allocated next.

    XLA's programs for CPUs allocate their temporary arrays at every call. Freed memory goes back to
    the system, whose fresh pages then take longer to come than much of what is computed in them: a
    step of training took 0.82 of its time with this call, ResNet-50 0.88 (benchmarks/README.md).
    The process stays as large as it was at its largest. The command line calls it.

    Call it before JAX computes anything: threads that run already have pools of their own.

    Returns:
      Whether it is so: on Linux with glibc; elsewhere nothing is changed.

    Source:
      https://man7.org/linux/man-pages/man3/mallopt.3.html

    Example:
      >>> anyjax.reuse_memory() in (True, False)
      True
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(*setting) for setting in SETTINGS.items())
