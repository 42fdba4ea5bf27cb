"""Reward against drift: curves over the root of the KL, their peak, and which checkpoint to take. Imports no torch."""
