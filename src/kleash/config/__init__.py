"""The configuration of a run: schema, loader, checks and messages."""
