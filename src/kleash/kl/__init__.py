"""The heart: estimators, exact KL, penalties, and the posterior of enumerable models."""
