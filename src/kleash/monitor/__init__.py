"""Watching: rules over a run's numbers, whoever trained it, and what follows from them. No torch."""
