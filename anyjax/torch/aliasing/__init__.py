"""Memory that several tensors share, as torch treats it: writes, views, ``no_grad``."""
