"""The command line without some packages: ``missing_run.py torch,optax VERB ...``."""

import sys
from importlib.machinery import PathFinder

GONE = {*sys.argv[1].split(",")}


class Finder(PathFinder):
    """Finds all others."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        gone = fullname.partition(".")[0] in GONE
        return None if gone else super().find_spec(fullname, path, target)


sys.meta_path[:] = [Finder if x is PathFinder else x for x in sys.meta_path]
sys.argv = ["anyjax", *sys.argv[2:]]

from anyjax.__main__ import main  # noqa: E402

main()
