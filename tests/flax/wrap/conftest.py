"""Keras counts its layers in a process: here their names start anew in each test."""

import sys

import pytest


@pytest.fixture(autouse=True)
def names_of_keras():
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
