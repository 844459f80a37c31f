"""The result of ``anyjax.explore``: figures by module and array, a page, JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyjax import html_text, units
from anyjax.explorer.modules import Array, Module
from anyjax.explorer.sharding import Placement, Sharding
from anyjax.explorer.statistics import Statistics
from anyjax.report_page import filled, write

FRAGMENT = Path(__file__).with_name("page.html")


@dataclass(frozen=True, repr=False)
class Report:
    """A model to look at; print it, or write it with ``to_html``.

    Attributes:
      name, framework: of the model's source.
      inputs: dtypes and shapes of the call, by argument.
      modules: the model itself and its modules, each after those around it.
      arrays: params and state.
      statistics: of their values, by name; empty where they were not read.
      programs: the jaxpr of each module, by path; long ones are cut.
      traced: whether there is a program, and so FLOPs and bytes moved.
      separator: between the parts of a path.
      sharding: the division over a mesh, if one was asked for.
      notes: what a reader has to know besides.
      origin: the folder, file or name that the model is from.

    Example:
      >>> import torch
      >>> report = anyjax.explore(anyjax.from_torch(torch.nn.Linear(3, 2)))
      >>> report.total.params, report.dtypes, [x.name for x in report.arrays]
      (8, {'float32': 32}, ['weight', 'bias'])
      >>> report.as_dict()["name"], json.loads(report.to_json())["arrays"][0]["shape"]
      ('Linear', [2, 3])
    """

    name: str
    framework: str
    inputs: dict[str, str]
    modules: list[Module]
    arrays: list[Array]
    statistics: dict[str, Statistics] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    traced: bool = True
    separator: str = "."
    sharding: Sharding | None = None
    notes: tuple[str, ...] = ()
    origin: str = ""

    @property
    def total(self) -> Module:
        """The model itself: the sums over all modules."""
        return self.modules[0]

    @property
    def dtypes(self) -> dict[str, int]:
        """Bytes of all arrays by dtype, the most first."""
        sizes: Counter[str] = Counter()
        for array in self.arrays:
            sizes[array.dtype] += array.bytes
        return dict(sizes.most_common())

    def to_html(self, file: str | os.PathLike[str]) -> None:
        """Writes a page that needs nothing else, no network either.

        Raises:
          NotWritten: the system refuses to write, or the disk is full; an earlier file is still
            there.

        Example:
          >>> import pathlib, tempfile, torch
          >>> file = pathlib.Path(tempfile.mkdtemp()) / "linear.html"
          >>> anyjax.explore(anyjax.from_torch(torch.nn.Linear(3, 2))).to_html(file)
          >>> "<title>Linear</title>" in file.read_text()
          True
        """
        unique = {text: i for i, text in enumerate(dict.fromkeys(self.programs.values()))}
        places = {path: unique[text] for path, text in self.programs.items()}
        data = {**self.as_dict(), "programs": [*unique], "programOf": places}
        write(file, filled("anyjax explore", FRAGMENT, self.name, data, table=str(self)))

    def to_json(self) -> str:
        """Returns all figures as JSON; numbers that are not finite are text, such as "nan"."""
        return json.dumps(self.as_dict(), allow_nan=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns all figures by name, as ``to_json`` has them."""
        return {
            "name": self.name,
            "framework": self.framework,
            "origin": self.origin,
            "inputs": self.inputs,
            "traced": self.traced,
            "separator": self.separator,
            "dtypes": self.dtypes,
            "modules": [_module(x) for x in self.modules],
            "arrays": [self._array(x) for x in self.arrays],
            "sharding": None if self.sharding is None else _sharding(self.sharding),
            "notes": [*self.notes],
        }

    def _array(self, x: Array) -> dict[str, Any]:
        figures = self.statistics.get(x.name)
        placement = self.sharding.placements.get(x.name) if self.sharding else None
        return {
            **dataclasses.asdict(x),
            "shape": [*x.shape],
            "statistics": None if figures is None else _finite(dataclasses.asdict(figures)),
            "placement": None if placement is None else _placement(placement),
        }

    def _facts(self) -> list[tuple[str, str]]:
        """Returns names and values of the model's own figures."""
        total, work = self.total, self.total.work
        words = [
            ("parameters", f"{total.params:,}"),
            ("params and state", units.size(total.bytes)),
            ("inputs", ", ".join(f"{k} {v}" for k, v in self.inputs.items()) or "no example"),
        ]
        if self.traced:
            words += [
                ("FLOPs of products", units.count(work.products)),
                ("other operations", units.count(work.elementwise)),
                ("bytes moved", units.size(work.traffic)),
            ]
        return words

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns path, class, params, bytes, FLOPs and bytes moved of each module."""
        traced = lambda text: text if self.traced else "-"
        return [
            (
                x.path or "(model)", x.kind, units.count(x.params), units.size(x.bytes),
                traced(units.count(x.work.products)), traced(units.size(x.work.traffic)),
            )
            for x in self.modules
        ]  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.name} from {self.framework}"]
        lines += [f"  {name:<18} {value}" for name, value in self._facts()]
        rows = [("module", "", "params", "bytes", "FLOPs", "moved"), *self._rows()]
        width = max(len(path) for path, *_ in rows[1:])
        for path, kind, *figures in rows:
            cells = " ".join(f"{figure:>10}" for figure in figures)
            lines.append(f"  {path:<{width}}  {cells}  {kind}".rstrip())
        if self.sharding is not None:
            lines += ["", str(self.sharding.estimate)]
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header = "module", "class", "params", "bytes", "FLOPs", "bytes moved"
        table = html_text.table(header, self._rows(), right=(2, 3, 4, 5))
        return html_text.div(
            html_text.line(self.name, f"from {self.framework}"),
            html_text.table(("", ""), self._facts()),
            html_text.details("modules", f"{len(self.modules)}", table),
            *(html_text.text(note) for note in self.notes),
        )


def _module(x: Module) -> dict[str, Any]:
    return {
        "path": x.path,
        "kind": x.kind,
        "params": x.params,
        "bytes": x.bytes,
        **dataclasses.asdict(x.work),
        "primitives": {name: dataclasses.asdict(t) for name, t in x.primitives.items()},
        "arrays": x.arrays,
    }


def _placement(x: Placement) -> dict[str, Any]:
    return {"spec": [[*axes] for axes in x.spec], "shape": [*x.shape], "bytes": x.bytes}


def _sharding(x: Sharding) -> dict[str, Any]:
    """Returns the figures of one device."""
    estimate = x.estimate
    return {
        "mesh": estimate.mesh,
        "plan": estimate.plan,
        "memory": estimate.memory,
        "outputs": estimate.outputs,
        "temporaries": estimate.temporaries,
        "peak": estimate.peak,
        "products": sum(estimate.products.values()),
        "elementwise": estimate.others,
        "traffic": estimate.traffic,
        "collectives": [
            {"kind": c.kind, "axes": [*c.axes], "calls": c.calls, "bytes": c.bytes}
            for c in estimate.communication
        ],
        "notes": [*estimate.notes],
    }


def _finite(figures: dict[str, object]) -> dict[str, Any]:
    """Returns figures as JSON can hold them."""
    is_text = lambda x: isinstance(x, float) and not math.isfinite(x)
    return {name: str(x) if is_text(x) else x for name, x in figures.items()}
