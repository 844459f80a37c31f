"""The jaxpr of each module as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anyjax.explorer.scopes import Scopes
from anyjax.jaxprs import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, is_program, opened

EQUATIONS = 150  # of a module at most
CHARACTERS = 12_000  # of its text at most


def texts(closed: ClosedJaxpr, names: Sequence[str], scopes: Scopes) -> dict[str, str]:
    """Returns the jaxpr of each module, those inside of it included, by path.

    Args:
      closed: the traced program.
      names: of the program's inputs that are weights, "" for the others.
      scopes: the modules.
    """
    pieces: dict[str, list[str]] = {}
    for path, text in _parts(opened(closed), "", dict(zip(opened(closed).invars, names)), scopes):
        pieces.setdefault(path, []).append(text)
    return {path: _capped("\n\n".join(several)) for path, several in pieces.items()}


def _parts(
    jaxpr: Jaxpr, outside: str, names: Mapping[Var, str], scopes: Scopes
) -> Iterator[tuple[str, str]]:
    """Yields (path, text) for each module that has equations in a jaxpr or in one that it calls."""
    equations: dict[str, list[JaxprEqn]] = {}
    for eqn in jaxpr.eqns:
        where = f"{outside}/{eqn.source_info.name_stack}"
        path = scopes.module_of(where)
        around = [*scopes.lineage(scopes.module_of(outside))][:-1]  # printed one level up
        for module in scopes.lineage(path):
            if module not in around and (module or not outside):
                equations.setdefault(module, []).append(eqn)
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else [value]:
                if is_program(inner):
                    yield from _parts(opened(inner), where, {}, scopes)
    uses = _uses(jaxpr.eqns)
    uses.update(v for v in jaxpr.outvars if not isinstance(v, Literal))
    for module, eqns in equations.items():
        inside = f"{module}{scopes.separator}" if module else ""
        yield module, _text(jaxpr, eqns, uses, names, inside)


def _uses(eqns: Iterable[JaxprEqn]) -> Counter[Var]:
    return Counter(v for eqn in eqns for v in eqn.invars if not isinstance(v, Literal))


def _text(
    jaxpr: Jaxpr, eqns: list[JaxprEqn], uses: Counter[Var], names: Mapping[Var, str], inside: str
) -> str:
    """Returns some equations of a jaxpr as one of their own, with a line that names its inputs."""
    first = eqns[:EQUATIONS]
    inner = _uses(first)
    results = {v: None for eqn in first for v in eqn.outvars}
    invars = [v for v in inner if v not in results]
    outvars = [v for v in results if uses[v] > inner[v]]
    module = jaxpr.replace(
        constvars=[],
        invars=invars,
        outvars=outvars,
        eqns=first,
        debug_info=DebugInfo("explore", "module", None, None),
    )
    inputs = [names.get(v, "").removeprefix(inside) or "_" for v in invars]
    head = f"# inputs: {', '.join(inputs)}\n" if any(names.get(v) for v in invars) else ""
    missing = len(eqns) - len(first)
    tail = f"\n# ... and {missing:,} equations more" if missing else ""
    return f"{head}{module}{tail}"


def _capped(text: str) -> str:
    """Returns the beginning of a text that is too long, with a line that says so."""
    if len(text) <= CHARACTERS:
        return text
    beginning = text[:CHARACTERS].rpartition("\n")[0]
    return f"{beginning}\n# ... and {text[len(beginning) :].count(chr(10)):,} lines more"
