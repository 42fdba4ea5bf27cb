"""Kleash inside other tools: mirrors to their trackers."""
