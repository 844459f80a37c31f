"""Folders that reproduce a fault by themselves."""
