"""torch.export's own prints, of which the error says all: nothing else is left out."""

import logging
import sys

import pytest

from anyjax.flax.codegen.graph.quiet import LOGGERS, quiet


def test_all_else_is_printed(capsys, caplog):
    with quiet():
        print("\n\ndef forward(self, arg0_1):\n    return 1\n", file=sys.stderr)
        print("a line", file=sys.stderr)
        print(file=sys.stderr)
        for name in LOGGERS:
            logging.getLogger(name).warning("something else")
            logging.getLogger(name).warning("Unable to find user code corresponding to {%s}", "u0")
    print("after it", file=sys.stderr)
    lines = capsys.readouterr().err.splitlines()  # torch's own handlers may write there, too
    assert [x for x in lines if "something else" not in x][-3:] == ["a line", "", "after it"]
    assert {x.getMessage() for x in caplog.records} <= {"something else"}


def test_an_error_leaves_nothing_behind():
    streams_and_filters = sys.stderr, [[*logging.getLogger(name).filters] for name in LOGGERS]
    with pytest.raises(KeyError), quiet():
        raise KeyError
    filters = [[*logging.getLogger(name).filters] for name in LOGGERS]
    assert streams_and_filters == (sys.stderr, filters)
