"""Prompts: where they come from, what they are, and how a model reads them."""
