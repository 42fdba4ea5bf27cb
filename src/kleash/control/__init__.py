"""Controllers of beta, the reward given up per nat of KL; no torch."""
