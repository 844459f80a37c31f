"""Functions of torch and transformers that are replaced while a thread traces."""
