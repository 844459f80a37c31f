"""The result of ``anyjax.verify``: a verdict in one sentence, a table, files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anyjax import html_text
from anyjax.compare.judge import Comparison, faults
from anyjax.compare.side import OUTPUT, Passes
from anyjax.compare.sides import golden
from anyjax.errors import WrongArguments
from anyjax.parity.predictions import Predictions
from anyjax.parity.report import page, table
from anyjax.report_page import write


@dataclass(frozen=True)
class Report:
    """A model beside its reference, module by module.

    Attributes:
      model, reference: what was compared.
      dtype: of the model's output.
      modules: one comparison for each module that both ran, in the order of execution; the model
        itself is last, with an empty path.
      gradients: the same for params and inputs, by name; empty unless asked for.
      operators: comparisons of torch's functions in the modules that were asked for.
      predictions: of language models.
      places: where the forward of a faulty module is written, by path.
      notes: what a reader has to know besides.
      seconds: of the forward passes, by side.
      versions: of the packages.
      passes: the values of both sides.
      reproducer: writes the smallest part at fault to a folder, and returns its path.
      unit: what the parts are: "modules", or "nodes" of TensorFlow.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(3, 2)))
      >>> report = anyjax.verify(model, np.ones((1, 3), np.float32))
      >>> report.ok, report.verdict, report.faults, report.as_dict()["modules"][0]["kind"]
      (True, 'equal up to float32 rounding; 2 modules', [], 'Tanh')
    """

    model: str
    reference: str
    dtype: str
    modules: list[Comparison]
    gradients: list[Comparison] = field(default_factory=list)
    operators: list[Comparison] = field(default_factory=list)
    predictions: Predictions | None = None
    places: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    passes: Passes | None = field(default=None, repr=False)
    reproducer: Callable[[str | os.PathLike[str]], str] | None = field(default=None, repr=False)
    unit: str = "modules"

    @property
    def faults(self) -> list[Comparison]:
        """The operators, modules and gradients at fault, the worst first of each."""
        return faults(self.operators) + faults(self.modules) + faults(self.gradients)

    @property
    def ok(self) -> bool:
        """Whether rounding explains all differences."""
        return not self.faults

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.ok:
            count = sum(x.path != OUTPUT for x in self.modules)
            groups = {"operators": self.operators, "gradients": self.gradients}
            also = "".join(f", {len(x)} {name}" for name, x in groups.items() if x)
            return f"equal up to {self.dtype} rounding; {count} {self.unit}{also}"
        worst, *further = self.faults
        name = worst.path or "the model's own code"
        error = max(worst.added.relative, worst.wide / worst.scale if worst.scale else 0.0)
        rest = f"; {len(further)} more" if further else ""
        place = f"; {self.places[worst.path]}" if worst.path in self.places else ""
        if "shapes differ" in worst.fault:
            return f"{name}: {worst.fault}{place}{rest}"
        return f"{name} adds an error of {error:.0e} that rounding does not explain{place}{rest}"

    def save_golden(self, folder: str | os.PathLike[str]) -> None:
        """Writes the reference's values, which ``verify(..., reference=folder)`` takes in its place
        on machines without its framework.

        Raises:
          WrongArguments: the folder holds something else.
          NotWritten: the system refuses to write, or the disk is full.

        Example:
          >>> import numpy as np, tempfile, torch
          >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 2)))
          >>> x, folder = np.ones((1, 3), np.float32), tempfile.mkdtemp()
          >>> anyjax.verify(model, x).save_golden(folder)
          >>> anyjax.verify(model, x, reference=folder).ok
          True
        """
        assert self.passes is not None, "a report of verify"
        kinds = {x.path: x.kind for x in self.modules}
        golden.save(folder, self.reference, self.passes, kinds)

    def reproduce(self, folder: str | os.PathLike[str]) -> str:
        """Writes a folder that reproduces the worst fault: the operator, node or module alone, its
        tensors, and ``reproduce.py``, which compares the two sides and ends with 3.

        Returns:
          The path of what is at fault.

        Raises:
          WrongArguments: the report has no fault, or the folder holds something else.
          Unsupported: a module cannot be pickled, or the reference is neither torch nor TensorFlow.
          NotWritten: the system refuses to write, or the disk is full.

        Example:
          >>> import numpy as np, tempfile, torch
          >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8))
          >>> model = anyjax.from_torch(module)
          >>> module[1].eps = 1e-2  # after the conversion
          >>> report = anyjax.verify(model, np.ones((2, 3), np.float32))
          >>> report.reproduce(tempfile.mkdtemp())
          '1'
        """
        if not faults(self.modules) or self.reproducer is None:
            raise WrongArguments(
                "there is no fault to reproduce", why=self.verdict, do="see report.ok before"
            )
        return self.reproducer(folder)

    def to_html(self, file: str | os.PathLike[str]) -> None:
        """Writes the report as one page that needs nothing else, no network either: a tree of the
        modules with their errors, errors against depth, the values of the worst modules.

        Raises:
          NotWritten: the system refuses to write, or the disk is full; an earlier file is still
            there.

        Example:
          >>> import numpy as np, pathlib, tempfile, torch
          >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 2)))
          >>> file = pathlib.Path(tempfile.mkdtemp()) / "report.html"
          >>> anyjax.verify(model, np.ones((1, 3), np.float32)).to_html(file)
          >>> "equal up to float32 rounding" in file.read_text()
          True
        """
        about = {
            "model": self.model, "reference": self.reference, "dtype": self.dtype, "ok": self.ok,
            "verdict": self.verdict, "places": self.places, "notes": self.notes,
            "versions": self.versions, "unit": self.unit,
        }  # fmt: skip
        compared = self.modules, self.gradients, self.operators
        figures = *compared, self.predictions, self.passes
        write(file, page.page(about, self.seconds, str(self), *figures))

    def __str__(self) -> str:
        lines = [f"{self.model} beside {self.reference}: {self.verdict}"]
        lines += table.lines(self.operators + self.modules, self.unit)
        if self.predictions is not None:
            lines.append(str(self.predictions))
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        state = "equal" if self.ok else "fault"
        pieces = [
            html_text.line(f"{self.model} beside {self.reference}: {state}"),
            html_text.text(self.verdict),
        ]
        groups = {
            "operators": self.operators, self.unit: self.modules, "gradients": self.gradients
        }  # fmt: skip
        for unit, compared in groups.items():
            if compared:
                header, *rows = table.cells(compared, unit)
                wrong = len(faults(compared))
                remark = f"{len(compared)}, {wrong} at fault" if wrong else f"{len(compared)}"
                body = html_text.table(header, rows, right=range(1, 6))
                pieces.append(html_text.details(unit, remark, body))
        if self.predictions is not None:
            pieces.append(html_text.text(str(self.predictions)))
        return html_text.div(*pieces, *map(html_text.text, self.notes))

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures by name, for JSON."""
        names = "path", "kind", "dtype", "fault", "rounding", "wide", "scale", "inherited"
        row = lambda x: {
            **{name: getattr(x, name) for name in names},
            "shape": list(x.shape),
            "total": dataclasses.asdict(x.total),
            "added": dataclasses.asdict(x.added),
        }
        same = "model", "reference", "verdict", "ok", "places", "seconds", "versions"
        compared = "modules", "gradients", "operators"
        return {
            **{name: getattr(self, name) for name in same},
            **{name: [*map(row, getattr(self, name))] for name in compared},
            "predictions": None if self.predictions is None else str(self.predictions),
            "notes": [*self.notes],
        }
