"""The site is built with the tested versions."""

from tests.docs.conftest import _tested_versions

__all__ = ["_tested_versions"]
