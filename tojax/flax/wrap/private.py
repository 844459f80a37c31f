"""Private names of torch and transformers that fresh weights need; looked up where they are there.

No framework is imported here: names alone.
"""

from __future__ import annotations

# What initialises a module of torch. The second is that of MultiheadAttention and Transformer.
RESET = ("reset_parameters", "_reset_parameters")
# Set on modules that transformers has loaded, whose weights it then does not initialise.
LOADED = "_is_hf_initialized"
