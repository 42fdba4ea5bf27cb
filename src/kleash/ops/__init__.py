"""Pure tensor mathematics: log-probabilities, masks, advantages, policy losses."""
