"""Runs on the tiny model: settings, a reward, policies, and an observer that remembers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from tiny_model import byte_tokenizer
from transformers import AutoModelForCausalLM, PretrainedConfig

from kleash.config.loader import load
from kleash.config.schema import RunConfig
from kleash.data.prompts import Prompt
from kleash.data.render import RenderedPrompt
from kleash.models.loading import load_policy
from kleash.models.policy import Policy
from kleash.rollout.sampler import Completion
from kleash.training.experience import Experience, Rewards
from kleash.training.observer import CheckResult, Silent
from kleash.training.session import Session, build, prepare

PROMPTS = [f"prompt number {i} says" for i in range(12)]

REWARD = '''
def vowels(completions, **columns):
    """Share of vowels, so that a byte model has something to learn."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
'''


def settings(model: Path, folder: Path, *overrides: str) -> RunConfig:
    """A run of seconds in `folder`, named `run`; overrides as on the command line."""
    prompts, reward = folder / "prompts.txt", folder / "reward.py"
    if not prompts.exists():
        prompts.write_text("\n".join(PROMPTS), encoding="utf-8")
    if not reward.exists():
        reward.write_text(REWARD, encoding="utf-8")
    base = [
        f"model={model}",
        "model.dtype=float32",
        f"prompts={prompts}",
        "prompts.held_out=0",
        f"reward={reward}:vowels",
        f"output_dir={folder / 'runs'}",
        "name=run",
        "rollout.max_completion_length=10",
        "algorithm.num_generations=4",
        "training.steps=4",
        "training.prompts_per_step=4",
    ]
    return load(None, [*base, *overrides]).config


def session(config: RunConfig) -> Session:
    """What a run holds in memory, without a run directory."""
    _, data, rewarder = prepare(config)
    return build(config, data, rewarder, Accelerator())


def policy(model: Path | str, *overrides: str, seed: int = 0) -> Policy:
    """A policy in float32 on the CPU; overrides of the `model` table."""
    base = [f"model.name={model}", "model.dtype=float32", "prompts=demo", "reward=json:dumps"]
    config = load(None, [*base, *overrides]).config
    return load_policy(config.model, context=64, seed=seed, device=torch.device("cpu"))


def perturb(weights: Policy, scale: float = 0.1, seed: int = 0) -> None:
    """Add noise to the trained weights, so that the policy is no longer the reference."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in weights.trained():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator).to(parameter))


def experience(prompts: list[list[int]], completions: list[list[int]], rewards: list[float]) -> Experience:
    """Given tokens with given rewards; `logprobs` of the sampler are 0."""
    raw = np.array(rewards, dtype=np.float64)
    return Experience(
        prompts=[RenderedPrompt(Prompt(None, "", {}, "here"), None, "", tuple(prompt)) for prompt in prompts],
        completions=[Completion(tuple(c), (0.0,) * len(c), False) for c in completions],
        texts=["" for _ in completions],
        rewards=Rewards(raw, raw.copy(), None, ~np.isnan(raw), 0),
    )


class Remembering(Silent):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.facts: list[str] = []
        self.checks: list[CheckResult] = []

    def fact(self, text: str) -> None:
        """Keep it."""
        self.facts.append(text)

    def checked(self, result: CheckResult) -> None:
        """Keep it."""
        self.checks.append(result)


SIZES = {
    "vocab_size": 261,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
}


def save_family(folder: Path, config: PretrainedConfig) -> Path:
    """A random model of another family, its vectors (biases, norms) random too, with the byte tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
