"""What the frozen reference writes to the same prompts: the opponent of a win rate."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.config.schema import Rollout
from kleash.data.render import RenderedPrompt
from kleash.models.reference import Reference
from kleash.models.tokenizer import Tokenizer
from kleash.rollout.decoding import DecodingSampler


def reference_texts(
    reference: Reference, tokenizer: Tokenizer, prompts: Sequence[RenderedPrompt], rollout: Rollout, seed: int
) -> list[str]:
    """One completion a prompt, at the rollout's temperature; the same seed and prompts give the same texts."""
    with reference.model_to_sample() as model:
        batch_size = None if rollout.batch_size == "auto" else rollout.batch_size
        completions = DecodingSampler(model, tokenizer, batch_size=batch_size).sample(
            [prompt.token_ids for prompt in prompts],
            num_samples=1,
            max_length=rollout.max_completion_length,
            temperature=rollout.temperature,
            seed=seed,
        )
    return [tokenizer.decode(completion.token_ids) for completion in completions]
