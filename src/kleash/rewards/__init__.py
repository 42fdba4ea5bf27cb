"""Rewards: functions that score completions, and the shaping that follows."""
