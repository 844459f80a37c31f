"""LoRA, DoRA and their files."""
