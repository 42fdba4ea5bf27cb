"""From settings to a trained model: one on-policy step, the loop around it, preflight, checkpoints.

Read `step.py` first: one step on one screen.
"""
