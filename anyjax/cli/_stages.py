"""Where the time to the first token goes: stages of a call, and what JAX says of its own."""

from __future__ import annotations

import time

START = time.time()  # of the process, nearly: the command line imports this first
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "traced in",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowered in",
    "/jax/core/compile/backend_compile_duration": "compiled, or read from the cache, in",
}


class Stages:
    """Seconds by stage, from the start of the process."""

    def __init__(self) -> None:
        self.last = START
        self.seconds: dict[str, float] = {}
        self.events: dict[str, float] = {}

    def end(self, name: str) -> None:
        """Ends a stage; of a name that was there before it is no more."""
        if name not in self.seconds:
            time_of_end = time.time()
            self.seconds[name], self.last = time_of_end - self.last, time_of_end

    def listen(self) -> None:
        """Adds up what JAX reports of tracing, lowering and compiling from now on."""
        from jax import monitoring

        def add(event: str, duration_secs: float, **kwargs: str | int) -> None:
            if event in EVENTS:
                name = EVENTS[event]
                self.events[name] = self.events.get(name, 0.0) + duration_secs

        monitoring.register_event_duration_secs_listener(add)

    def rows(self) -> list[tuple[str, str]]:
        """Returns names and seconds of the stages, and their sum."""
        rows = [(name, f"{seconds:.2f}") for name, seconds in self.seconds.items()]
        rows += [(f"  {name}", f"{seconds:.2f}") for name, seconds in self.events.items()]
        return [*rows, ("all", f"{sum(self.seconds.values()):.2f}")]
