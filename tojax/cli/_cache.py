"""``tojax cache``: what the command line keeps of compilations."""

from __future__ import annotations

import os
import shutil
import sys

from tojax.calls import compilation_cache
from tojax.cli.options import Cache

OFF = "--no-cache"


def use() -> None:
    """Lets JAX, which is not imported yet, keep what it compiles; ``--no-cache`` and JAX's own
    environment variables turn that off.
    """
    if OFF in sys.argv[1:]:
        sys.argv.remove(OFF)
        return
    if {"JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"} & os.environ.keys():
        return
    for name, value in compilation_cache.settings(compilation_cache.default_folder()).items():
        os.environ.setdefault(name.upper(), str(value))


def cache(options: Cache) -> None:
    """Runs ``tojax cache``."""
    folders = sorted(compilation_cache.cache_folder().glob("programs-*"))
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    programs = sum(file.name.endswith("-cache") for file in files)
    if options.clear:
        for folder in folders:
            shutil.rmtree(folder)
        print(f"removed {programs} programs, {size / 1e6:.1f} MB")
        return
    print(f"{compilation_cache.default_folder()}")
    limit = compilation_cache.LARGEST / 1e6
    print(
        f"{programs} programs, {size / 1e6:.1f} MB of at most {limit:.0f} MB; --clear removes them"
    )
