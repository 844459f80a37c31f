"""A pytest plugin that writes the files of anyjax with functions that tests call: to $CALLED."""

import json
import os
import sys
from pathlib import Path

import pytest

PACKAGE = f"{Path(__file__).parents[2] / 'anyjax'}{os.sep}"
CALLED = set()


def note(frame, event, arg):
    """Notes a call; what a module does while it is imported is none."""
    code = frame.f_code
    if code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
        CALLED.add(code.co_filename)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(None)


def pytest_sessionfinish():
    files = sorted(f"anyjax/{x.removeprefix(PACKAGE)}" for x in CALLED)
    Path(os.environ["CALLED"]).write_text(json.dumps(files))
