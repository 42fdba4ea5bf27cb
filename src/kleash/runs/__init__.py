"""The run directory: what a run leaves behind, written as it goes and read without torch."""
