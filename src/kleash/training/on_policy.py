"""The job of algorithms that learn from the policy's own samples: RLOO, GRPO, PPO, online DPO."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from kleash.config.schema import RunConfig
from kleash.control.controller import Controller
from kleash.models import demo_model
from kleash.models.policy import Policy
from kleash.models.reference import MovingReference, Reference
from kleash.runs.records import Sample, Split
from kleash.training import session as sessions
from kleash.training import state
from kleash.training.evaluate import evaluate, samples_of
from kleash.training.experience import Rewarder, Spread
from kleash.training.given import NOTHING_GIVEN, Given
from kleash.training.job import NOTHING_BESIDE, Made, Progress
from kleash.training.observer import Observer
from kleash.training.preflight import preflight
from kleash.training.seeds import prompts_of_step
from kleash.training.session import Data, Session, make_controller
from kleash.training.statistics import Numbers
from kleash.training.step import StepResult, on_policy_step


@dataclass(frozen=True)
class Prepared:
    """Prompts and reward functions, before weights are read."""

    config: RunConfig
    data: Data
    rewarder: Rewarder
    given: Given

    def facts(self) -> Mapping[str, Any]:
        """Prompts by split."""
        return {"prompts": {"train": len(self.data.train), "held_out": len(self.data.held_out)}}

    def fingerprint(self) -> str:
        """SHA-256 of the prompts' tokens, in their order, and of the text's where there is any."""
        rows = [[p.token_ids for p in self.data.train], [p.token_ids for p in self.data.held_out]]
        if self.data.text:
            rows.append([tuple(row) for row in self.data.text])
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def build(self, accelerator: Accelerator) -> OnPolicyJob:
        """Read the weights."""
        return OnPolicyJob(sessions.build(self.config, self.data, self.rewarder, accelerator, self.given))


def prepare(config: RunConfig, given: Given = NOTHING_GIVEN) -> Prepared:
    """All that can fail before weights are read: tokenizer, prompts, reward functions.

    Raises:
        KleashError: what cannot be read or used.
    """
    _, data, rewarder = sessions.prepare(config, given)
    return Prepared(config, data, rewarder, given)


class OnPolicyJob:
    """A session, stepped by the loop."""

    def __init__(self, session: Session) -> None:
        """Train `session`."""
        self.session = session
        self.config, self.accelerator = session.config, session.accelerator

    @property
    def controller(self) -> Controller:
        """What sets beta."""
        return self.session.controller

    @property
    def midway(self) -> bool:
        """Whether an update was made that is not recorded yet."""
        return self.session.updater.midway

    @midway.setter
    def midway(self, value: bool) -> None:
        self.session.updater.midway = value

    def fingerprint(self) -> str:
        """SHA-256 of the reference."""
        return self.session.reference.fingerprint()

    def facts(self, fingerprint: str) -> Mapping[str, Any]:
        """Who is trained, and from whom drift is measured."""
        return model_facts(self.session.policy, self.session.reference, fingerprint)

    def preflight(self, observer: Observer, fingerprint: str) -> None:
        """Is the leash attached, and to what?"""
        preflight(self.session, observer, fingerprint)

    def evaluate(self, step: int, split: Split, progress: Progress) -> Made:
        """Reward and drift on the held-out prompts."""
        if not self.session.data.held_out:
            return Made()
        numbers, samples = evaluate(
            self.session.bench, step, split, lambda done, total: progress("held-out", done, total)
        )
        return Made(numbers, samples)

    def step(self, step: int, progress: Progress) -> Made:
        """Sample, score, update, steer."""
        result = on_policy_step(self.session, step, progress)
        return Made(result.numbers, self._kept(result, step), self._stop(result.numbers))

    def conclude(self) -> Mapping[str, Any]:
        """Nothing besides the numbers."""
        return {}

    def save(self, folder: Path, step: int, fingerprint: str, beside: Mapping[str, Any] = NOTHING_BESIDE) -> None:
        """Adapter or model, optimiser, controller, critic."""
        session = self.session
        spread, reference = session.rewarder.spread, session.reference
        saved = {
            "step": step,
            "optimizer": session.optimizer.state_dict(),
            "starting_beta": session.starting_beta,
            "controller": session.controller.state_dict(),
            "reference_fingerprint": fingerprint,
            "moving_reference": reference.state() if isinstance(reference, MovingReference) else None,
            "reward_spread": None if spread is None else (spread.mean, spread.sd, spread.count),
            "critic": None if session.critic is None else session.critic.state_dict(),
            **beside,
        }
        state.save(folder, saved, lambda path: state.save_weights(session.policy, path))

    def restore(self, saved: Mapping[str, Any], fingerprint: str) -> int:
        """Put a saved state into the session."""
        session = self.session
        state.check_frozen(saved, fingerprint, "reference", session.policy.name)
        session.optimizer.load_state_dict(saved["optimizer"])
        session.starting_beta = saved["starting_beta"]
        session.controller = make_controller(session.algorithm.kl, session.starting_beta)
        session.controller.load_state_dict(saved["controller"])
        if isinstance(session.reference, MovingReference):
            session.reference.load_state(saved["moving_reference"])
        if saved["reward_spread"] is not None:
            session.rewarder.spread = Spread(*saved["reward_spread"])
        if session.critic is not None:
            session.critic.load_state_dict(saved["critic"])
        return int(saved["step"])

    def _kept(self, result: StepResult, step: int) -> list[Sample]:
        """Some of the step's samples, those of all processes counted on."""
        training = self.config.training
        indices = prompts_of_step(len(self.session.data.train), training.prompts_per_step, step, training.seed)
        processes = self.accelerator.num_processes
        by_rank = [i for rank in range(processes) for i in indices[rank::processes]]
        return samples_of(
            result.experience,
            result.record,
            self.session.policy.tokenizer,
            step,
            "train",
            by_rank,
            training.save_samples,
        )

    def _stop(self, numbers: Numbers) -> str | None:
        """Why the run must end, if its KL is too high."""
        limit, kl = self.session.algorithm.kl.stop_above, numbers.metrics["kl/exact_per_sequence"]
        if limit is None or kl is None or kl <= limit:
            return None
        return (
            f"KL is {kl:.3g} nats per sequence, above algorithm.kl.stop_above = {limit:g}. "
            "Lower the learning rate, or hold a target"
        )


def model_facts(policy: Policy, reference: Reference, fingerprint: str) -> Mapping[str, Any]:
    """Who is trained, and from whom drift is measured."""
    return {
        "weights_source": demo_model.describe(policy.name),
        "device": str(policy.device),
        "dtype": str(policy.dtype),
        "reference": reference.description,
        "reference_fingerprint": fingerprint,
    }
