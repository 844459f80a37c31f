"""A checkpoint as a torch module, by transformers' own loader; its weights are still on disk."""
