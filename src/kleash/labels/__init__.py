"""Pairs of completions to compare, people's and judges' votes on them, and how far the voters agree."""
