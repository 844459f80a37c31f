"""A call compiled for chips that are not here, by their own compiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from anyjax import html_text
from anyjax.chips.devices import devices_of
from anyjax.chips.figures import slice_of
from anyjax.errors import Unsupported
from anyjax.model import Model
from anyjax.parallel._estimate import (
    Plan,
    check_plan,
    check_rows,
    checked_mesh,
    evaluate,
    input_specs,
    mesh_for,
)
from anyjax.parallel.collectives import Traffic
from anyjax.parallel.estimation.call import Traced, forward_call, trace_call, train_call
from anyjax.parallel.estimation.compiled import Compiled, compile_call
from anyjax.parallel.estimation.kernels import Kernel
from anyjax.parallel.estimation.report import Estimate
from anyjax.report_page import write
from anyjax.tables import aligned, markdown
from anyjax.units import count, duration, size

SHOWN = 12  # kernels of a table
KERNELS = "kernel", "line", "calls", "bytes", "share"


@dataclass(frozen=True)
class Compilation:
    """A program as a target's compiler made it, beside the estimate; ``str`` is a table.

    Attributes:
      chips: the slice.
      compiled: the compiler's figures for one device.
      estimate: those of ``anyjax.parallel.estimate``.
    """

    chips: str
    compiled: Compiled
    estimate: Estimate

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on one device: arguments, outputs beside those in their place, temporaries, and
        the peak, which is all of them.
        """
        x = self.compiled
        outputs = x.outputs - x.aliased
        sizes = {"arguments": x.arguments, "outputs": outputs, "temporaries": x.temporaries}
        return {**sizes, "peak": x.peak}

    @property
    def fits(self) -> bool:
        """Whether the peak fits a device's memory."""
        return self.compiled.peak <= self.estimate.chip.memory / self.estimate.chip.devices

    @property
    def traffic(self) -> int:
        """Bytes that the kernels of one device read and write."""
        return self.compiled.traffic

    @property
    def cycles(self) -> int:
        """Cycles of one device that a TPU's compiler expects, without those of kernels that it did
        not make, such as an attention's; 0 for GPUs, whose compiler tells none.
        """
        return self.compiled.cycles

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, the heaviest first."""
        return self.compiled.kernels

    @property
    def collectives(self) -> dict[str, Traffic]:
        """Collectives by kind, their number and bytes."""
        return self.compiled.collectives

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Returns (title, compiler's figure, estimate, remark) of each line."""
        estimate, compiled = self.estimate, self.compiled
        mesh = ", ".join(f"{k}={v}" for k, v in estimate.mesh.items())
        memory = estimate.chip.memory / estimate.chip.devices
        share = f"{compiled.peak / memory:.0%} of a device's memory"
        verdict = f"{'fits' if self.fits else 'does not fit'}: {share}"
        estimates = estimate.arguments, estimate.outputs, estimate.temporaries, estimate.traced_peak
        call = f"{estimate.model}, {estimate.plan}, {mesh}"
        shown = [(estimate.what, self.chips, "estimate", call)]
        for (name, figure), expected in zip(self.memory.items(), estimates):
            remark = verdict if name == "peak" else ""
            shown.append((name, size(figure), size(expected), remark))
        shown.append(("memory traffic", size(self.traffic), size(estimate.traffic), ""))
        if self.cycles:
            remark = "without kernels that are not the compiler's"
            shown.append(("cycles", count(self.cycles), "", remark))
        calls = f"{sum(k.calls for k in self.kernels):,}"
        shown.append(("kernels", calls, "", f"compiled in {duration(compiled.seconds)}"))
        for kind, (number, total) in sorted(self.collectives.items()):
            shown.append((kind, size(total), "", f"{number} x"))
        return shown

    def heaviest(self, number: int = SHOWN) -> list[tuple[str, str, str, str, str]]:
        """Returns (operation, source line, calls, bytes, share) of the heaviest kernels: shares are
        of cycles, of a GPU's traffic. Those whose cycles a TPU's compiler does not know are there,
        too, and have no share.
        """
        weigh = (lambda k: k.cycles) if self.cycles else (lambda k: k.bytes)
        total = max(sum(map(weigh, self.kernels)), 1)
        named = lambda k: k.name if k.kind == "fusion" else f"{k.name} ({k.kind})"
        share = lambda k: f"{weigh(k) / total:.1%}" if weigh(k) else ""
        custom = [k for k in self.kernels if "custom" in k.kind and not weigh(k)]
        return [
            (named(k), k.where, f"{k.calls:,}", size(k.bytes), share(k))
            for k in [*self.kernels[:number], *custom[:number]]
        ]

    def __str__(self) -> str:
        return "\n".join([*aligned(self.rows()), "", *aligned([KERNELS, *self.heaviest()])])

    def markdown(self) -> str:
        """Returns the tables in Markdown."""
        head, *rows = self.rows()
        return f"{markdown(head, rows)}\n\n{markdown(KERNELS, self.heaviest())}"

    def _repr_html_(self) -> str:
        head, *rows = self.rows()
        header = *KERNELS, ""
        kernels = [
            (*row, html_text.bar(160, float(row[4][:-1] or 0) / 100)) for row in self.heaviest(100)
        ]
        return html_text.div(
            html_text.table(head, rows, right=(1, 2)),
            html_text.line("Kernels", "of layers that differ in nothing else together"),
            html_text.table(header, kernels, right=(2, 3, 4)),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a page: the figures, and the heaviest kernels with their source lines."""
        write(path, html_text.page(f"{self.estimate.what} on {self.chips}", self._repr_html_()))


def compile_for(
    model: Model | Callable[..., object],
    chips: str,
    plan: Plan = "tp+fsdp",
    *args: Any,
    mesh: dict[str, int] | None = None,
    state: object = None,
    rng: jax.Array | None = None,
    **kwargs: Any,
) -> Compilation:
    """Compiles a call, or a training step, for chips that are not here.

    libtpu and JAX's CUDA plugin compile without a chip and without a network: these are the
    program, memory and collectives that the machine will have. Nothing is allocated or run: arrays
    may be ``ShapeDtypeStruct``. A deep model compiles faster rolled, see
    ``anyjax.transforms.roll``.

    Args:
      model: a Model, or a step of ``anyjax.train.make_step``.
      chips: such as "v6e-8" or "h100-1"; the names are those of ``anyjax.parallel.estimate``.
      plan: "tp", "fsdp", "tp+fsdp", or rules, as for ``shard``.
      *args: the call; of a step, the batch.
      mesh: sizes of its axes, as for ``estimate``; of v7x, which has two devices, twice as many.
      state: the ``TrainState`` that a step takes.
      rng: the key of the call, where it draws random numbers.
      **kwargs: its arguments by name.

    Returns:
      A Compilation: print it, or ``save`` it as a page.

    Raises:
      WrongArguments: no such chip, slice or plan, or one that does not divide the call.
      Unsupported: the target's compiler finds that the program does not fit the memory.
      MissingDependency: the compiler is not installed: anyjax[tpu] or anyjax[cuda] bring it.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Linear(512, 512))
      >>> try:
      ...     print(anyjax.parallel.compile_for(model, "v6e-8", "tp", np.ones((16, 512), "f4")))
      ... except anyjax.errors.MissingDependency:
      ...     pass  # pip install "anyjax[tpu]"
    """
    if isinstance(model, Model):
        call = forward_call(model, args, kwargs, rng)
    else:
        call = train_call(model, state, *args)
    return compile_traced(trace_call(call), chips, plan, mesh)


def compile_traced(
    traced: Traced,
    chips: str,
    plan: Plan = "tp+fsdp",
    mesh: dict[str, int] | None = None,
    *,
    progress: Callable[[str], object] = lambda said: None,
) -> Compilation:
    """Compiles a traced call, see ``compile_for``."""
    devices, (chip, _) = devices_of(chips), slice_of(chips)
    mesh = checked_mesh(mesh, chips, len(devices)) or mesh_for(plan, len(devices))
    check_rows(traced, mesh)
    inputs = input_specs(traced, mesh, plan)
    check_plan(traced, mesh, plan, inputs)
    estimate = evaluate(traced, chip, mesh, plan, inputs)
    progress(f"compiling for {chips}")
    try:
        compiled = compile_call(traced, mesh, inputs, devices=devices)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise Unsupported(
            f"a program that does not fit {chips}",
            where=f"{traced.call.what} of {traced.call.model.source.name}, {dict(mesh)}",
            why=" ".join(str(error).split())[:300],
            do=f"take more chips, fewer rows or another plan: by estimate {estimate.verdict()}",
        ) from error
    return Compilation(chips, compiled, estimate)
