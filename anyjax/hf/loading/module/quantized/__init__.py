"""Checkpoints whose weights are quantized: what config.json says, and the layouts of each tool."""
