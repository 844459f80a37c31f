"""Calls of submodules, watched from outside."""
