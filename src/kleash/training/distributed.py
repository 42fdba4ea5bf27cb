"""What several processes measured, put together on each of them, so that all steer alike."""

from __future__ import annotations

import numpy as np
from accelerate import Accelerator
from accelerate.utils import gather_object

from kleash.training.experience import Experience, Rewards
from kleash.training.scoring import TokenRecord


def gathered(accelerator: Accelerator, experience: Experience, record: TokenRecord) -> tuple[Experience, TokenRecord]:
    """Concatenate experiences and records over processes, in the order of their ranks."""
    if accelerator.num_processes == 1:
        return experience, record
    parts: list[tuple[Experience, TokenRecord]] = gather_object([(experience, record)])
    experiences, records = zip(*parts, strict=True)
    rewards = [e.rewards for e in experiences]
    golds = [r.gold for r in rewards if r.gold is not None]
    return Experience(
        prompts=[prompt for e in experiences for prompt in e.prompts],
        completions=[completion for e in experiences for completion in e.completions],
        texts=[text for e in experiences for text in e.texts],
        rewards=Rewards(
            raw=np.concatenate([r.raw for r in rewards]),
            shaped=np.concatenate([r.shaped for r in rewards]),
            gold=np.concatenate(golds) if golds else None,
            scored=np.concatenate([r.scored for r in rewards]),
            num_clipped=sum(r.num_clipped for r in rewards),
            by_function={
                name: np.concatenate([r.by_function[name] for r in rewards]) for name in rewards[0].by_function
            },
            asked=rewards[0].asked,
        ),
    ), TokenRecord(
        policy_logprobs=np.concatenate([r.policy_logprobs for r in records]),
        reference_logprobs=np.concatenate([r.reference_logprobs for r in records]),
        reverse_kl=np.concatenate([r.reverse_kl for r in records]),
        forward_kl=np.concatenate([r.forward_kl for r in records]),
        entropy=np.concatenate([r.entropy for r in records]),
    )
