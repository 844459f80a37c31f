"""torch's dispatcher in this thread, as a thread has it that has just begun."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from anyjax.torch.core import current_trace, private

_KEYS = private.included_keys, private.excluded_keys
with ThreadPoolExecutor(1) as _thread:  # this import may come from inside of a mode
    PLAIN = _thread.submit(lambda: [keys() for keys in _KEYS]).result()


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Puts aside what goes on, traces and transformations too: a trace is the same wherever it
    begins (in another one, in a lowering, in an operator on JAX), and a file is read as it is.
    """
    functions, operators = private.function_modes(), private.dispatch_modes()
    for _ in functions:
        private.pop_function_mode()
    for _ in operators:
        private.pop_dispatch_mode()
    try:
        with private.ForceKeys(*PLAIN), current_trace.entered(None):
            yield
    finally:
        for mode in operators:
            private.push_dispatch_mode(mode)
        for mode in functions:
            private.push_function_mode(mode)
