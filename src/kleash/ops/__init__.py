"""Pure tensor mathematics: log-probabilities, masks, advantages; losses of policies, critics and preferences."""
