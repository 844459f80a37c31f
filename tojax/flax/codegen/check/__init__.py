"""Runs the written file beside torch, before anybody gets it."""
