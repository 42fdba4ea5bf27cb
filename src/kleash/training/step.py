"""One step on one screen.

prompts -> rollout -> rewards -> scoring (reference; policy and critic where needed) -> advantages -> updates (KL
penalty, loss, optimiser) -> control -> numbers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from kleash.models.reference import MovingReference
from kleash.training.credit import assign
from kleash.training.distributed import gathered
from kleash.training.experience import Experience, gather
from kleash.training.job import Progress, quiet
from kleash.training.scoring import TokenRecord, measure
from kleash.training.seeds import prompts_of_step
from kleash.training.session import Session
from kleash.training.statistics import Numbers, per_sequence, summarize
from kleash.training.update import Updated


@dataclass(frozen=True)
class StepResult:
    """What one step saw and measured; of all processes together."""

    experience: Experience
    record: TokenRecord
    numbers: Numbers


def on_policy_step(session: Session, step: int, progress: Progress = quiet) -> StepResult:
    """Sample from the policy, score, update it once or more, and steer beta.

    `step` counts from 0. What is measured belongs to the policy that sampled, before its update. `progress` hears of
    the phase, and how much of it is done.

    Raises:
        RunStopped: a number is not finite; the weights are as they were before the step.
    """
    clock = [time.perf_counter()]
    prompts = [session.data.train[i] for i in _own_prompts(session, step)]
    rollout = session.config.rollout
    completions = session.make_sampler().sample(
        [prompt.token_ids for prompt in prompts],
        num_samples=session.objective.num_generations,
        max_length=rollout.max_completion_length,
        temperature=rollout.temperature,
        seed=session.seed("rollout", step),
        progress=lambda done, total: progress("sampling", done, total),
    )
    clock.append(time.perf_counter())
    opponents = session.opponents(prompts, step)
    experience = gather(prompts, completions, session.policy.tokenizer, session.rewarder, opponents)
    clock.append(time.perf_counter())
    drift = _drift_from_original(session, experience, step)
    beta = session.controller.beta
    progress("updating", 0, 1)
    scored = session.updater.score(experience, step)
    credit = assign(session, experience, scored, beta)
    clock.append(time.perf_counter())
    updated = session.updater(experience, scored, credit.advantages, beta=beta, step=step)
    learned = None if session.critic is None else session.critic.update(experience, credit, step)
    clock.append(time.perf_counter())

    if drift is not None:
        _, drift = gathered(session.accelerator, experience, drift)
    experience, record = gathered(session.accelerator, experience, updated.record)
    numbers = summarize(experience, record, session.policy.tokenizer)
    if drift is not None:
        values = per_sequence(drift.reverse_kl, experience.lengths)
        numbers.mean("kl/original_per_sequence", values, experience.group_size)
    _steer(session, experience, record, numbers, beta)
    if isinstance(session.reference, MovingReference):
        session.reference.follow(step, session.policy.trained())
    _account(session, updated, numbers, step, clock)
    numbers.metrics |= session.rewarder.judged()
    if learned is not None:
        numbers.metrics |= learned.metrics()
    return StepResult(experience, record, numbers)


def _own_prompts(session: Session, step: int) -> list[int]:
    """This process's share of the step's prompts."""
    training = session.config.training
    chosen = prompts_of_step(len(session.data.train), training.prompts_per_step, step, training.seed)
    return list(chosen[session.accelerator.process_index :: session.accelerator.num_processes])


def _steer(session: Session, experience: Experience, record: TokenRecord, numbers: Numbers, beta: float) -> None:
    """Feed the exact KL, in the target's unit, to the controller; note what it did."""
    controller = session.controller
    per_token = session.algorithm.kl.target_nats_per_token is not None
    total, tokens = float(record.reverse_kl.sum()), max(1, int(experience.lengths.sum()))
    sequences = len(experience.completions)
    controller.update(total / (tokens if per_token else sequences), sequences)
    numbers.metrics |= {
        "control/beta": beta,
        "control/target": controller.target,
        "control/saturated": controller.saturated,
    }
    numbers.notes["beta"] = controller.reason


def _drift_from_original(session: Session, experience: Experience, step: int) -> TokenRecord | None:
    """Where the reference moves: the policy that sampled against where training started."""
    if not isinstance(session.reference, MovingReference):
        return None
    return measure(
        experience,
        session.policy,
        session.reference.original,
        temperature=session.config.rollout.temperature,
        per_batch=session.updater.plan.groups_per_batch,
        step=step,
    )


def _account(session: Session, updated: Updated, numbers: Numbers, step: int, clock: list[float]) -> None:
    """Losses, ratios, optimiser and seconds."""
    totals, updates = updated.totals, updated.num_updates
    now = clock[-1]
    tokens = float(totals.tokens) / session.config.training.num_epochs
    numbers.metrics |= {
        "loss/policy": float(totals.policy_loss) / updates,
        "loss/kl": float(totals.kl_loss) / updates,
        "ratio/clip_fraction": float(totals.clipped / totals.ratios.clamp(min=1)),
        "ratio/max": float(totals.largest_ratio),
        "optim/grad_norm": float(totals.grad_norm) / updates,
        "optim/learning_rate": session.optimizer.learning_rate(step),
        "time/rollout": clock[1] - clock[0],
        "time/reward": clock[2] - clock[1],
        "time/score": clock[3] - clock[2],
        "time/update": clock[4] - clock[3],
        "time/total": now - clock[0],
        "throughput/tokens_per_second": tokens / (now - clock[0]),
    }
    if session.config.pretraining is not None:
        numbers.metrics["loss/pretraining"] = float(totals.pretraining_loss) / updates
    if session.algorithm.kl.max_weight is not None:
        numbers.metrics["ratio/truncated_share"] = float(totals.truncated / totals.tokens.clamp(min=1))
