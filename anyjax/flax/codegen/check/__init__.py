"""The written file beside torch, compared before it is returned."""
