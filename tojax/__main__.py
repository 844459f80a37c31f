"""``python -m tojax``."""

from tojax.cli import main

main()
