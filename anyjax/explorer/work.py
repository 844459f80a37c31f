"""The work of a traced program by module and primitive."""

from __future__ import annotations

from dataclasses import dataclass

from anyjax.explorer.scopes import Scopes
from anyjax.parallel.estimation.call import Traced
from anyjax.parallel.estimation.cost.fusion import fuse
from anyjax.parallel.estimation.cost.work import each_work
from anyjax.parallel.estimation.divide.partition import divide, replicated


@dataclass
class Tally:
    """Equations of a kind.

    Attributes:
      equations: how many there are; one in a loop counts once.
      products: FLOPs of matrix products and convolutions, two for each pair of numbers; those in a
        loop as often as it runs, as all figures below.
      elementwise: operations of everything else, one for each element.
      traffic: bytes read from and written to memory, elementwise operations fused.
    """

    equations: int = 0
    products: float = 0.0
    elementwise: float = 0.0
    traffic: float = 0.0

    def add(self, other: Tally) -> None:
        self.equations += other.equations
        self.products += other.products
        self.elementwise += other.elementwise
        self.traffic += other.traffic


Work = dict[str, dict[str, Tally]]


def work_by_module(traced: Traced, scopes: Scopes) -> tuple[Work, list[str]]:
    """Returns for each module path the tallies of its own equations, by primitive, and notes on
    what the figures leave out.
    """
    program = traced.program
    divided = divide(program, {}, [replicated(program.values[v]) for v in program.inputs])
    notes = []
    if divided.unknown:
        names = ", ".join(sorted(divided.unknown))
        notes.append(f"Counted as one operation for each element, whatever they do: {names}.")
    if any(node.name == "while" for node in program.nodes):
        notes.append(
            "A while loop is counted for one round, because nothing says how often it runs."
        )
    work: Work = {}
    for node, amount, times in each_work(divided, fuse(divided)):
        tallies = work.setdefault(scopes.module_of(node.where), {})
        products = sum(amount.products.values()) * times
        tally = Tally(1, products, amount.other_flops * times, amount.traffic * times)
        tallies.setdefault(node.name, Tally()).add(tally)
    return work, notes


def readers(traced: Traced, scopes: Scopes) -> dict[str, str]:
    """Returns the module that reads each weight first, by the weight's name."""
    program = traced.program
    names = {v: role.name for v, role in zip(program.inputs, traced.roles) if role.name}
    modules: dict[str, str] = {}
    for node in program.nodes:
        for v in node.ins:
            if v in names:
                modules.setdefault(names[v], scopes.module_of(node.where))
    return modules
