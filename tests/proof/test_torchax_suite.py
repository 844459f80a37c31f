"""proof.torchax_suite: what it makes of a file of tests that imports torchax."""

from __future__ import annotations

import pytest

from proof import torchax_suite

pytestmark = pytest.mark.processes

SUITE = """
import unittest
import torch
import torchax


class Suite(unittest.TestCase):
    def test_device(self):
        with torchax.default_env():
            self.assertEqual(torch.ones(2, device="jax").device.type, "jax")

    def test_interpolate(self):
        with self.subTest("one"):
            pass
        with self.subTest("another"):
            self.fail()

    def test_wrong(self):
        self.assertEqual(torch.ones(1).item(), {expected})

    @unittest.skip("because")
    def test_skipped(self):
        pass
"""


@pytest.mark.parametrize("expected", [1, 2])
def test_counts_and_failures(tmp_path, capsys, expected):
    folder = tmp_path / "test"
    folder.mkdir()
    (folder / "test_some.py").write_text(SUITE.format(expected=expected))
    unknown = torchax_suite.main([str(folder)])
    printed = capsys.readouterr().out
    assert unknown == int(expected == 2)
    assert f"'passed': {3 - expected}" in printed and "'skipped': 1" in printed
    assert "test_interpolate: looks for a helper of torchax's" in printed
    assert ("test_wrong: not known" in printed) == (expected == 2)
