"""An estimate, and its report as a table, Markdown or a page."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from anyjax import html_text
from anyjax.chips.figures import Chip
from anyjax.parallel.estimation.compiled import Compiled
from anyjax.report_page import write
from anyjax.tables import markdown
from anyjax.units import count, duration, size


@dataclass(frozen=True)
class Communication:
    """Collectives of one kind over some axes: calls, bytes of whole arrays on one device, time."""

    kind: str
    axes: tuple[str, ...]
    calls: int
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """The needs of one call on each device of a mesh; ``str`` is a table, ``save`` writes a page.

    Attributes:
      what: "forward", "train", "prefill" or "decode".
      chip, count: the slice.
      memory: bytes of arguments on one device, by kind: params, optimizer, state, cache, inputs.
      gradients: bytes of the gradients on one device, a part of the temporaries.
      outputs: bytes of results that take no argument's place.
      temporaries: bytes of everything else at the peak.
      largest: (bytes, shape, dtype, operation, module) of the largest temporaries at the peak.
      products: FLOPs of matrix products on one device, by dtype; ``others`` of all else.
      traffic: bytes read from and written to memory.
      communication: the collectives.
      compute, moving, linking: seconds at the chip's rates: products, memory, links.
      tokens: tokens of one call, on all devices together.
      useful: FLOPs of products without recomputation, on all devices together.
      compiled: figures of XLA's program for virtual CPU devices, if it was compiled.
      otherwise: (plan, chips) that fit where this does not.
      notes: on what the figures leave out.
    """

    what: str
    model: str
    chip: Chip
    count: int
    mesh: dict[str, int]
    plan: str
    dtype: str
    weights: int
    memory: dict[str, int]
    gradients: int
    outputs: int
    temporaries: int
    largest: tuple
    products: dict[str, float]
    others: float
    traffic: float
    communication: tuple[Communication, ...]
    compute: float
    moving: float
    linking: float
    tokens: int
    useful: float
    compiled: Compiled | None = None
    otherwise: tuple[str, int] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def arguments(self) -> int:
        """Bytes of all arguments on one device."""
        return sum(self.memory.values())

    @property
    def traced_peak(self) -> int:
        """The most bytes on one device at any time, by the traced program."""
        return self.arguments + self.outputs + self.temporaries

    @property
    def peak(self) -> int:
        """The peak to plan with: the traced one; on CPUs that of XLA's program, if compiled."""
        if self.chip.name == "cpu" and self.compiled is not None:
            return self.compiled.peak
        return self.traced_peak

    @property
    def fits(self) -> bool | None:
        """Whether the peak fits a chip's memory; None where that is unknown."""
        return self.peak <= self.chip.memory if self.chip.memory else None

    @property
    def seconds(self) -> float:
        """Seconds of one call, if compute, memory and links reach their rates at the same time."""
        return max(self.compute, self.moving, self.linking)

    @property
    def bound(self) -> str:
        """The resource that limits the time: compute, memory or interconnect."""
        times = {"compute": self.compute, "memory": self.moving, "interconnect": self.linking}
        return max(times, key=lambda k: times[k])

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second, of all devices together."""
        return self.tokens / self.seconds

    @property
    def utilization(self) -> float:
        """Model FLOP utilisation: useful FLOPs, as a share of all chips' rate in that time."""
        rate = self.chip.rate(self.dtype) * self.count
        return self.useful / (self.seconds * rate)

    def verdict(self) -> str:
        """Returns in words whether the call fits."""
        if self.fits is None:
            return "not judged: the memory of this chip is not known"
        share = f"{self.peak / self.chip.memory:.0%} of {size(self.chip.memory)}"
        if self.fits:
            return f"fits: {share}"
        alternative = "nothing that was tried does"
        if self.otherwise is not None:
            plan, count = self.otherwise
            alternative = f'plan "{plan}" on {self.chip.name}-{count} does'
        return f"does not fit: {share}; {alternative}"

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns (title, value, remark) of each line."""
        shown = [("model", self.model, f"{count(self.weights)} params in {self.dtype}")]
        mesh = ", ".join(f"{k}={v}" for k, v in self.mesh.items())
        shown.append(("call", self.what, f"{self.chip.name}-{self.count}, {self.plan}, {mesh}"))
        add_row = lambda *row: shown.append(row)
        for kind, amount in self.memory.items():
            add_row(kind, size(amount), "")
        if self.gradients:
            add_row("gradients", size(self.gradients), "among the temporaries")
        add_row("temporaries", size(self.temporaries), self._largest())
        add_row("outputs", size(self.outputs), "beside those in an argument's place")
        add_row("peak per device", size(self.peak), self.verdict())
        if self.compiled is not None:
            remark = f"XLA's program for CPUs: {size(self.compiled.temporaries)} of temporaries"
            add_row("compiled peak", size(self.compiled.peak), remark)
            add_row("traced peak", size(self.traced_peak), "")
        flops = sum(self.products.values())
        add_row("FLOPs per device", count(flops + self.others), f"{count(flops)} in products")
        add_row("memory traffic", size(self.traffic), "")
        for c in self.communication:
            over = "+".join(c.axes)
            add_row(f"{c.kind} ({over})", size(c.bytes), f"{c.calls} x, {duration(c.seconds)}")
        add_row("compute time", duration(self.compute), "")
        add_row("memory time", duration(self.moving), "")
        add_row("interconnect time", duration(self.linking), "")
        add_row("step time", duration(self.seconds), f"bound by {self.bound}")
        add_row("tokens/s", f"{self.tokens_per_second:,.0f}", f"{self.tokens:,} tokens a call")
        add_row("utilization", f"{self.utilization:.1%}", "model FLOPs of the chips' rate")
        return shown + [("note", note, "") for note in self.notes]

    def _largest(self) -> str:
        if not self.largest:
            return ""
        amount, shape, dtype, name, _ = self.largest[0]
        return f"largest: {dtype}{[*shape]} of {name}, {size(amount)}"

    def __str__(self) -> str:
        rows = self.rows()
        first, second = (max(len(r[i]) for r in rows if r[0] != "note") for i in (0, 1))
        return "\n".join(f"{a:<{first}}  {b:>{second}}  {c}".rstrip() for a, b, c in rows)

    def markdown(self) -> str:
        """Returns the table in Markdown."""
        return markdown(["", "per device", ""], self.rows(), right=[1])

    def _repr_html_(self) -> str:
        top = max(self.peak, self.chip.memory, 1)
        amounts = {**self.memory, "outputs": self.outputs, "temporaries": self.temporaries}
        bars = "".join(
            f'<span class="part {k}" style="width:{600 * v / top:.1f}px" title="{k}: {size(v)}">'
            "</span>"
            for k, v in amounts.items()
        )
        edge = f'<span class="edge" style="left:{600 * self.chip.memory / top:.1f}px"></span>'
        table = html_text.table(("", "", ""), self.rows(), right=(1,))
        return html_text.div(f'{STYLE}<div class="memory">{bars}{edge}</div>', table)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a page: a bar of the memory in use, with a mark for the chip's, and the table."""
        write(path, html_text.page("Estimate", self._repr_html_()))


STYLE = """<style>
.memory { position: relative; height: 24px; width: 600px; margin: 8px 0;
  background: rgba(128, 128, 128, 0.25); }
.memory .part { display: inline-block; height: 24px; background: #3b6ea5; }
.memory .optimizer { background: #7b4ea5; } .memory .cache { background: #3b8f6e; }
.memory .temporaries { background: #d08a35; } .memory .outputs { background: #8a8a8a; }
.memory .edge { position: absolute; top: -4px; height: 32px; border-left: 2px solid #d93025; }
</style>"""
