"""Sampling: the protocol and the built-in sampler."""
