"""What torch does to memory that several tensors share: writes, views, ``no_grad``."""
