"""What a call of ``generate`` asks for, by transformers' own rules."""
