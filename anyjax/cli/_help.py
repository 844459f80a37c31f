"""Help pages: verbs and options in groups, examples, exit codes; plain text of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from typer.core import TyperCommand, TyperGroup

from anyjax.cli._codes import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

MANY = 8  # options; more of them are shown in groups
GROUPS = {
    "Which model": "adapter dtype task allow_pickle signature tokenizer quantize weights",
    "Text": "prompt image audio max_new_tokens temperature seed generate.steps",
    "The call": "batch length train decode prefill optimizer remat gradients operators",
    "Hardware": "chips mesh plan compile platforms executables",
    "Decoding": "generate sample",
    "Training": "data steps finetune.batch finetune.length rate every finetune.seed dry_run",
    "The adapter": "rank dora targets finetune.quantize",
    "Output": "output out format roll profile html markdown reproduce open json",
}
GROUP_OF = {name: title for title, names in GROUPS.items() for name in names.split()}


class Formatter(Protocol):
    """The part of click's formatter that is used here; newer typers have a copy of click."""

    def section(self, name: str) -> AbstractContextManager[None]:
        """Writes a title, and indents what follows."""

    def write(self, string: str) -> None:
        """Writes a text as it is."""

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None:
        """Writes two columns."""


class Command(TyperCommand):
    """A verb; the lines of its epilog are examples."""

    def format_options(self, ctx: Any, formatter: Formatter) -> None:
        """Writes arguments and options, many of them in groups."""
        records = [(p, p.get_help_record(ctx)) for p in self.get_params(ctx)]
        options = [(p, r) for p, r in records if r and p.param_type_name == "option"]
        arguments = [r for p, r in records if r and p.param_type_name == "argument"]
        groups = _grouped((self._title(p.name), r) for p, r in options)
        _write(formatter, [("Arguments", arguments), *groups])

    def _title(self, option: str) -> str:
        count = sum(p.param_type_name == "option" for p in self.params)
        names = GROUP_OF if count > MANY else {}
        return names.get(f"{self.name}.{option}") or names.get(option) or "Options"

    def format_epilog(self, ctx: Any, formatter: Formatter) -> None:
        """Writes the examples as they stand: no line is wrapped."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))


class Group(TyperGroup):
    """The verbs, in groups."""

    def format_commands(self, ctx: Any, formatter: Formatter) -> None:
        """Writes the first sentence of each verb's help, group by group."""
        verbs: Any = self.commands.values()
        _write(formatter, _grouped((x.rich_help_panel, (x.name, x.short_help)) for x in verbs))

    def format_epilog(self, ctx: Any, formatter: Formatter) -> None:
        """Writes the exit codes, and the first example."""
        _write(formatter, [("Exit codes", [(str(int(x)), text) for x, text in MEANINGS.items()])])
        formatter.write(f"\n{self.epilog}\n")


def _grouped(records: Iterable[tuple[str, tuple]]) -> list[tuple[str, list[tuple]]]:
    groups: dict[str, list[tuple]] = {}
    for name, record in records:
        groups.setdefault(name, []).append(record)
    return [*groups.items()]


def _write(formatter: Formatter, sections: Sequence[tuple[str, Sequence[tuple]]]) -> None:
    """Writes lists of (name, help) under their titles, all with the same columns."""
    names = [len(name) for _, records in sections for name, _ in records]
    widest = min(max(names, default=0), 30)
    for title, records in sections:
        if records:
            with formatter.section(title):
                padded = [(name.ljust(widest), text) for name, text in records]
                formatter.write_dl(padded)
