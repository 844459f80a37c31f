"""``anyjax cache``: what the command line keeps of compilations."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from anyjax.calls import compilation_cache
from anyjax.cli.writing import Cache
from anyjax.units import size

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
    """Runs ``anyjax cache``."""
    about = contents()
    if options.clear:
        for folder in folders():
            shutil.rmtree(folder)
    if options.json:
        from anyjax.cli import _shown  # rich may be missing, and this file is always imported

        _shown.as_json({**about, "removed": options.clear})
        return
    programs, amount = f"{about['programs']} programs", size(about["bytes"])
    if options.clear:
        print(f"removed {programs}, {amount}")
        return
    print(about["folder"])
    print(f"{programs}, {amount} of at most {size(about['limit'])}; --clear removes them")


def folders() -> list[Path]:
    """Returns the folders of programs, one for each kind of processor."""
    return sorted(compilation_cache.cache_folder().glob("programs-*"))


def contents() -> dict[str, Any]:
    """Returns the folder for this processor, and programs and bytes of all kinds."""
    files = [file for folder in folders() for file in folder.rglob("*") if file.is_file()]
    return {
        "folder": str(compilation_cache.default_folder()),
        "programs": sum(file.name.endswith("-cache") for file in files),
        "bytes": sum(file.stat().st_size for file in files),
        "limit": compilation_cache.LARGEST,
    }
