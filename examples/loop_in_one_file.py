"""RLOO on a leash in one file: sample, reward, measure the KL exactly, update, move beta.

    python examples/loop_in_one_file.py HuggingFaceTB/SmolLM2-135M-Instruct --steps 40

The model learns to begin more of its words with s, while its KL to the model it started from is held near
TARGET nats per sequence. `kleash train` runs the same loop with checks, resume, a faster sampler, a report.

    maximise  E[reward] - beta KL(policy ‖ reference),    reference = the policy with its adapter switched off

Axes: P prompts, G samples of each, B = P G sequences, S prompt + response positions, T response positions,
N response tokens of the batch, H hidden.

Not covered: models whose logits are more than hidden states times a head (Gemma's soft cap, Cohere's scale).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from kleash.kl import exact, penalty
from kleash.ops.advantages import leave_one_out
from kleash.ops.masks import to_rows
from kleash.ops.policy_losses import clipped_sequence_ratio

PROMPTS = (
    "The hotel room we booked",
    "My first week at the new school",
    "When the old train finally arrived,",
    "The soup that my neighbour makes",
    "On the last day of summer",
    "The people who live by the lake",
    "It was a quiet evening and",
    "Nobody in the village knew that",
)
SAMPLES_PER_PROMPT = 4
MAX_NEW_TOKENS = 24
LEARNING_RATE = 1e-3
TARGET = 6.0  # KL to hold, nats per sequence
RAMP_STEPS = 12  # steps in which the target rises to that
STARTING_BETA = 0.02  # reward given up per nat; about sd(reward) / sqrt(2 TARGET)


class Rollout(NamedTuple):
    """Sampled sequences, padded on the left before the prompt and on the right after the response."""

    tokens: Tensor  # [B, S]
    attention_mask: Tensor  # [B, S], True at prompt and response
    response_mask: Tensor  # [B, T], True at the response, stop token included


class Step(NamedTuple):
    """What one step measured, before its update."""

    reward: float
    kl_nats_per_sequence: float
    beta: float


def reward(text: str) -> float:
    """Share of the words that begin with s, between 0 and 1; an empty reply gets 0."""
    words = text.lower().split()
    return sum(word.startswith("s") for word in words) / max(len(words), 1)


def load(name: str) -> tuple[PeftModel, Any]:
    """Return the policy, a fresh LoRA adapter on a frozen model, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, lora).eval(), tokenizer


def sample(policy: PeftModel, tokenizer: Any, prompts: Sequence[str]) -> Rollout:
    """Draw one reply to each prompt from the policy itself: temperature 1, no top-k, no top-p."""
    inputs = tokenizer(list(prompts), padding=True, return_tensors="pt").to(policy.device)
    how = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    tokens = policy.generate(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, generation_config=how)
    stops = (tokens[:, inputs.input_ids.shape[1] :] == tokenizer.eos_token_id).long()
    response_mask = stops.cumsum(dim=1) - stops == 0  # up to and including the first stop token
    return Rollout(tokens, torch.cat([inputs.attention_mask.bool(), response_mask], dim=1), response_mask)


def texts(rollout: Rollout, tokenizer: Any) -> list[str]:
    """Each response as text, without its stop token."""
    responses = rollout.tokens[:, -rollout.response_mask.shape[1] :]
    kept = [row[mask].tolist() for row, mask in zip(responses, rollout.response_mask, strict=True)]
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in kept]


def hidden_states(policy: PeftModel, rollout: Rollout) -> Tensor:
    """Hidden states `[N, H]` at the positions that predict a response token, row by row."""
    backbone, mask = policy.get_base_model().base_model, rollout.attention_mask.long()
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    output = backbone(rollout.tokens, attention_mask=mask, position_ids=positions, use_cache=False)
    return output.last_hidden_state[:, -rollout.response_mask.shape[1] - 1 : -1][rollout.response_mask]


def measure(policy: PeftModel, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Log-probability of each sampled token and KL(policy ‖ reference) at its position, both `[B, T]`."""
    with torch.no_grad(), policy.disable_adapter():
        reference = hidden_states(policy, rollout)
    head = policy.get_base_model().get_output_embeddings().weight
    targets = rollout.tokens[:, -rollout.response_mask.shape[1] :][rollout.response_mask]
    tokens = exact.linear_kl(hidden_states(policy, rollout), head, reference, head, targets)
    return (
        to_rows(tokens.policy_logprobs, rollout.response_mask),
        to_rows(tokens.reverse_kl, rollout.response_mask),
    )


def loss(logprobs: Tensor, kl: Tensor, rewards: Tensor, response_mask: Tensor, beta: float) -> Tensor:
    """-A log policy + beta KL, mean over sequences: minus the objective at the top of this file, in gradient.

    The samples are the policy's own, so the behavior is the policy held constant: every ratio is 1 in value.
    """
    behavior = logprobs.detach()
    grouped = rewards.view(-1, SAMPLES_PER_PROMPT)
    advantages = leave_one_out(grouped, torch.ones_like(grouped, dtype=torch.bool)).flatten()
    gain = clipped_sequence_ratio(logprobs, behavior, advantages, response_mask, epsilon=0.2)
    weights = penalty.cumulative_weights(logprobs, behavior, response_mask)
    drift = penalty.exact_sequence(kl, logprobs, weights, response_mask, SAMPLES_PER_PROMPT)
    return (gain.values + beta * drift).mean()


def next_beta(kl: float, step: int, integral: float) -> tuple[float, float]:
    """PI control of log beta; sqrt(target) rises linearly. Return the next beta and the new integral.

    `kleash.control.target` adds what a longer run needs: a derivative, bounds, and an integral that rests at them.
    """
    target = TARGET * min(1.0, (step + 1) / RAMP_STEPS) ** 2
    error = max(-1.0, min(1.0, math.log(max(kl, 1e-3) / target)))
    integral += 0.08 * error if step >= RAMP_STEPS else 0.0
    return math.exp(integral + 2.0 * error), integral


def train(policy: PeftModel, tokenizer: Any, steps: int) -> list[Step]:
    """Run the loop, print a line a step, and return what each step measured."""
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, LEARNING_RATE, weight_decay=0)
    prompts = [prompt for prompt in PROMPTS for _ in range(SAMPLES_PER_PROMPT)]
    beta, integral, history = STARTING_BETA, math.log(STARTING_BETA), []
    print("step  reward  KL (nats per sequence)  beta (reward per nat)")
    for step in range(steps):
        rollout = sample(policy, tokenizer, prompts)
        rewards = torch.tensor([reward(text) for text in texts(rollout, tokenizer)], device=policy.device)
        logprobs, kl = measure(policy, rollout)
        loss(logprobs, kl, rewards, rollout.response_mask, beta).backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(Step(rewards.mean().item(), kl.sum(dim=1).mean().item(), beta))
        print(f"{step:4d}  {history[-1].reward:6.3f}  {history[-1].kl_nats_per_sequence:22.3f}  {beta:21.4f}")
        beta, integral = next_beta(history[-1].kl_nats_per_sequence, step, integral)
    return history


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, then print the reference's and the policy's replies side by side."""
    parser = argparse.ArgumentParser(description="RLOO with an exact KL penalty, in one file.")
    parser.add_argument("model", help="Hugging Face hub id or local folder")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    policy, tokenizer = load(options.model)
    train(policy, tokenizer, options.steps)
    with policy.disable_adapter():
        before = texts(sample(policy, tokenizer, PROMPTS), tokenizer)
    after = texts(sample(policy, tokenizer, PROMPTS), tokenizer)
    for prompt, old, new in zip(PROMPTS, before, after, strict=True):
        print(f"\n{prompt}\n  reference: {old.strip()!r}\n  policy:    {new.strip()!r}")


if __name__ == "__main__":
    main()
