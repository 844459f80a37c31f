"""The options of a call of ``generate``, read by transformers' own rules."""
