"""Where modules keep their tensors: filled before a call, read back after it."""
