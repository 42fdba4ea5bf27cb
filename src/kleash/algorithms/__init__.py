"""One file an algorithm: its advantages and its loss, pure.

`rloo` REINFORCE with a leave-one-out baseline; `grpo` its group-relative cousins (Dr. GRPO, DAPO).
"""
