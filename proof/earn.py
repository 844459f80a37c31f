"""Does a row or a pass earn its place? Each is switched off while its own cases run.

python -m proof.earn torch [--only 'norm|pool']   # rows beside torch's decompositions
python -m proof.earn tensorflow                   # rows beside TensorFlow's bridge to XLA
python -m proof.earn source [--every 11]          # passes that make Flax source shorter

A line for each lowering: "stays" with the case that needs it, or "goes". What goes is to be read
before it is deleted: the cases of a suite are not all that users do.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax

from anyjax.jaxprs import jaxprs_in_params
from anyjax.table import Table

Cases = dict[Any, list[Any]]  # by operator
CALLS = {"jit", "pjit", "custom_jvp_call", "custom_vjp_call"}
SAMPLES = 2
MOST = 3  # entries of a lowering
MODES = ("values", "grad", "vmap", "compiled")


@contextlib.contextmanager
def without(table: Table, ops: Sequence[Any]) -> Iterator[None]:
    """Takes the rows of these operators out of a table."""
    rows = {op: table[op] for op in ops}
    for op in ops:
        del table._rows[op]
    table.version += 1
    try:
        yield
    finally:
        table._rows.update(rows)
        table.version += 1


@contextlib.contextmanager
def noted(table: Table) -> Iterator[set[Any]]:
    """Notes the operators whose rows are asked for."""
    seen: set[Any] = set()
    find = table.find

    def noting(op: Any) -> Any:
        row = find(op)
        if row is not None:
            seen.add(op)
        return row

    table.version += 1
    vars(table)["find"] = noting
    try:
        yield seen
    finally:
        del vars(table)["find"]
        table.version += 1


def lowerings(table: Table, served: Callable[[Any], bool]) -> dict[Callable, list[Any]]:
    """Returns the operators of each lowering, all of which something else serves."""
    found: dict[Callable, list[Any]] = collections.defaultdict(list)
    for op, row in table.items():
        found[inspect.unwrap(row.lowering)].append(op)
    return {f: ops for f, ops in found.items() if all(map(served, ops))}


def lines_of(function: Callable) -> int:
    """Returns how long a lowering is; 1 for a row of JAX's own function."""
    if not str(getattr(function, "__module__", "")).startswith("anyjax"):
        return 1
    try:
        return len(inspect.getsource(function).splitlines())
    except (OSError, TypeError):
        return 1


def equations(function: Callable, *args: Any) -> int:
    """Counts the equations of a function's program, those of inner programs too."""
    total, programs = 0, [jax.make_jaxpr(function)(*args).jaxpr]
    while programs:
        for equation in programs.pop().eqns:
            programs += jaxprs_in_params(equation.params)
            total += equation.primitive.name not in CALLS
    return total


def _torch_rows() -> tuple[Table, Callable[[Any], bool]]:
    from anyjax.torch.core import private
    from anyjax.torch.core.schema import table

    def served(op: Any) -> bool:
        composite = private.has_kernel(op, private.COMPOSITE)
        return composite or private.decompositions.get(op) or hasattr(op, "impl_aten")

    return table, served


def _torch_cases(table: Table) -> Cases:
    from tests.conformance import op_db
    from tests.conformance.entries import case_of, samples
    from tests.conformance.modes import arrays_of, of_jax

    cases: Cases = collections.defaultdict(list)
    for entry in op_db.op_db:
        if not op_db.supports(entry, "values", op_db.torch.float32):
            continue
        with noted(table) as seen, contextlib.suppress(Exception):
            for sample in samples(entry, op_db.torch.float32, SAMPLES):
                case = case_of(entry, sample)
                jax.make_jaxpr(of_jax(case))(*arrays_of(case))
        for op in seen:
            cases[op].append(entry)
    return cases


def _torch_needs(table: Table, ops: Sequence[Any], entries: Sequence[Any]) -> str:
    """Returns why these rows are needed, "" if nothing says so."""
    from tests.conformance import op_db
    from tests.conformance.entries import case_of, samples
    from tests.conformance.modes import arrays_of, of_jax

    float32 = op_db.torch.float32
    for entry in entries[:MOST]:
        for sample in samples(entry, float32, SAMPLES):
            case = case_of(entry, sample)
            try:
                count = equations(of_jax(case), *arrays_of(case))
            except Exception:  # the values decide shapes
                continue
            with without(table, ops):
                try:
                    other = equations(of_jax(case), *arrays_of(case))
                except Exception as error:
                    return f"{op_db.name_of(entry)}: {said(error)}"
            if other > count:
                return f"{op_db.name_of(entry)}: {other} equations, not {count}"
    for entry in entries[:MOST]:
        for mode in MODES:
            if not op_db.supports(entry, mode, float32):
                continue
            with without(table, ops):
                status, what = op_db.run(entry, mode, float32)
            fails = status in ("wrong", "error")
            if fails and op_db.run(entry, mode, float32)[0] not in ("wrong", "error"):
                return f"{op_db.name_of(entry)} {mode}: {what}"
    return "" if entries else "no case"


def _tensorflow_rows() -> tuple[Table, Callable[[Any], bool]]:
    from anyjax.tensorflow.core.schema import table
    from tests.conformance.tensorflow_coverage import FILE

    bridged = {*json.loads(FILE.read_text())["bridge"]}
    return table, bridged.__contains__


def _tensorflow_cases(table: Table) -> Cases:
    from tests.conformance import tensorflow_set

    cases: Cases = collections.defaultdict(list)
    for name in tensorflow_set.CASES:
        with contextlib.suppress(Exception):
            case = tensorflow_set.prepare(name)
            graph = case.function.get_concrete_function(*case.args).graph.as_graph_def()
            bodies = [graph.node, *(f.node_def for f in graph.library.function)]
            for op in {node.op for body in bodies for node in body}:
                cases[op].append(name)
    return cases


def _symbolic(name: str) -> bool:
    """Returns whether a case can be exported for a batch of any size."""
    import tensorflow as tf

    import anyjax
    from tests.conformance import tensorflow_set

    case = tensorflow_set.prepare(name)
    specs = [tf.TensorSpec([None, *x.shape[1:]][: x.ndim], x.dtype) for x in case.args]
    scope = jax.export.SymbolicScope()
    size = lambda x: ", ".join(["b", *map(str, x.shape[1:])][: x.ndim])
    shapes = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(size(x), scope=scope), x.dtype)
        for x in case.args
    ]
    try:
        function = tf.function(case.function.python_function, input_signature=specs)
        model = anyjax.from_tensorflow(function)
        run = lambda *args: model.apply(model.params, *args, state=model.state)
        jax.export.export(jax.jit(run))(*shapes)
    except Exception:  # of ours, TensorFlow's or JAX's: any of them is the answer
        return False
    return any(x.ndim for x in case.args)


def _tensorflow_needs(table: Table, ops: Sequence[Any], cases: Sequence[Any]) -> str:
    """Returns why these rows are needed, "" if nothing says so."""
    from tests.conformance import tensorflow_set

    for name in cases[:MOST]:
        symbolic = _symbolic(name)
        with without(table, ops):
            if symbolic and not _symbolic(name):
                return f"{name}: no batch of any size"
            wrong = {mode: why for mode, why in tensorflow_set.run(name).items() if why}
        if wrong and not wrong.items() <= tensorflow_set.run(name).items():
            return f"{name} {next(iter(wrong.items()))}"
    return "" if cases else "no case"


def said(error: Exception) -> str:
    """Returns an error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def _nothing(*args: object) -> None:
    """Does and gives nothing, in the place of a pass."""


def _unchanged(statements: list[Any]) -> list[Any]:
    return statements


def _apart(*args: object) -> None:
    from anyjax.flax.codegen.python.join_branches import Inseparable

    raise Inseparable


CODEGEN = "anyjax.flax.codegen"
PASSES: dict[str, Callable[..., Any]] = {
    f"{CODEGEN}.module.initial_values.expression_for": _nothing,
    f"{CODEGEN}.graph.simplify_masks.MaskSimplifier.run": _nothing,
    f"{CODEGEN}.module.writer.plainer": _unchanged,
    f"{CODEGEN}.merge.constructor_lines.first_apart": _nothing,
    f"{CODEGEN}.merge.variants.branched": _apart,
}


def passes(every: int) -> None:
    """Prints for types of transformers how much longer the source is without each pass."""
    from proof.records import RESULTS, read
    from proof.tiny_inputs import tiny

    types = [r["type"] for r in read(RESULTS / "transformers_types.csv") if r["flax"] == "ok"]
    for model_type in types[::every]:
        case = tiny(model_type)
        length = source_length(case)
        longer = {}
        for name, instead in PASSES.items():
            with mock.patch(name, instead):
                try:
                    longer[name.split(".")[-1]] = f"{source_length(case) / length - 1:.1%}"
                except Exception as error:
                    longer[name.split(".")[-1]] = said(error)
        print(model_type, length, longer, flush=True)


def source_length(case: Any) -> int:
    """Counts the characters of a tiny model's Flax source."""
    import anyjax

    return len(anyjax.flax.source(case.model, check=False, **case.inputs))


KINDS = {
    "torch": (_torch_rows, _torch_cases, _torch_needs),
    "tensorflow": (_tensorflow_rows, _tensorflow_cases, _tensorflow_needs),
}


def rows(kind: str, only: str) -> None:
    """Prints a line for each lowering that something else may serve, long ones first."""
    read, cases_of, needs = KINDS[kind]
    table, served = read()
    candidates = lowerings(table, served)
    cases = cases_of(table)
    for function in sorted(candidates, key=lines_of, reverse=True):
        ops = candidates[function]
        name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__name__', function)}"
        if re.search(only, name):
            chosen = {id(case): case for op in ops for case in cases[op]}
            why = needs(table, ops, [*chosen.values()])
            print(f"{'stays' if why else 'goes '} {lines_of(function):3} {name} {why}", flush=True)
            jax.clear_caches()


def main(values: Sequence[str] | None = None) -> None:
    """Prints what stays and what goes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=[*KINDS, "source"])
    parser.add_argument("--only", default="", help="lowerings whose module or name matches")
    parser.add_argument("--every", type=int, default=11, help="of the types of transformers")
    options = parser.parse_args(values)
    warnings.simplefilter("ignore")
    if options.kind == "source":
        passes(options.every)
    else:
        rows(options.kind, options.only)


if __name__ == "__main__":
    sys.exit(main())
