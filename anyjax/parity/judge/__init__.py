"""The judgement: forward passes, errors, and the parts at fault."""
