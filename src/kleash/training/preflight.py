"""Before the first step: is the leash attached, and to what?

Each check is one function that returns a `CheckResult`. A failed one names its cause and ends the run, unless its name
is in `skip_checks`. Every process runs the same checks on the same samples, so that all start with the same beta.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from accelerate.utils import broadcast_object_list

from kleash.choices import penalty
from kleash.config.algorithms import Grpo
from kleash.data.render import RenderedPrompt
from kleash.errors import DataError, RunStopped
from kleash.models.reference import Reference
from kleash.models.scoring import logits_scale
from kleash.rollout.sampler import Completion, Progress
from kleash.training.checkpoints import kept_at_the_end
from kleash.training.experience import Experience, Spread, gather
from kleash.training.observer import CheckResult, Observer
from kleash.training.scoring import TokenRecord, measure, reference_states
from kleash.training.seeds import seed_for
from kleash.training.session import Session, make_controller, starting_beta
from kleash.training.statistics import per_sequence

PERTURBATION = 0.02
"""Standard deviation of the noise added to the trained weights: an untrained adapter would hide every fault."""
MISMATCH_LIMIT = {torch.float32: 0.01, torch.bfloat16: 0.8}
"""Largest 99 % quantile of |sampler - scorer| in nats per token. bfloat16 alone makes 0.2 to 0.4 on a 135M model."""
PADDING_LIMIT = {torch.float32: 2e-4, torch.bfloat16: 0.5}
LOGITS_LIMIT = 0.02
"""Largest difference of logits, as a share of the largest logit; bfloat16 alone makes less than 0.01."""
CHECKED_GROUPS = 2
CHECKED_TOKENS = 64
"""What the checks look at; whole replies are sampled once, for the reward."""


def preflight(session: Session, observer: Observer, fingerprint: str) -> None:
    """Run all checks, print the facts, and set the starting beta.

    Raises:
        RunStopped: a check failed that is not in `skip_checks`.
    """
    _reference_facts(session, observer, fingerprint)
    probe, seconds = _probe(session, observer)
    record = _measured(session, probe)
    few = _selected(probe, range(min(CHECKED_GROUPS, len(probe.prompts))))
    checks: list[Callable[[], CheckResult]] = [
        lambda: _logits_agree(session, probe),
        lambda: _kl_at_start(session, record),
        lambda: _scores_repeat(session, few),
        lambda: _padding(session, _selected(probe, _extremes(probe))),
        lambda: _sampler_agrees(session, few),
        lambda: _beta_has_gradient(session, few),
        lambda: _reward_varies(session, probe),
    ]
    failed = []
    for check in checks:
        result = check()
        observer.checked(result)
        if not result.passed and result.fatal and result.name not in session.config.skip_checks:
            failed.append(result)
    _start_controller(session, observer, probe)
    _odd_answers(session, observer, probe)
    _cost(session, observer, seconds + _update_seconds(session, few, int(probe.lengths.sum())))
    if failed:
        text = "; ".join(f"{result.name}: {result.detail}" for result in failed)
        names = ", ".join(f'"{result.name}"' for result in failed)
        raise RunStopped(f"preflight failed: {text}. Mend that, or set skip_checks = [{names}] if it is meant")


def _reference_facts(session: Session, observer: Observer, fingerprint: str) -> None:
    extra = session.reference.extra_bytes / 1e6
    observer.fact(f"policy     {session.policy.name}, {session.policy.dtype}, {session.policy.device}")
    observer.fact(
        f"reference  {session.reference.description}; fingerprint {fingerprint[:16]}; {extra:.0f} MB of its own"
    )
    kl = session.algorithm.kl
    observer.fact(f"KL         {kl.estimator}, scope {kl.scope}, in the {kl.placement}, nats")
    if kl.research_only:
        choice = penalty(kl.estimator, kl.scope, kl.placement, research_only=True)
        observer.fact(f"research   this penalty is refused outside of research; its gradient is {choice.gradient}")


def _probe(session: Session, observer: Observer) -> tuple[Experience, float]:
    """Samples of the starting policy on training prompts: as many as one step."""
    prompts = list(session.data.train[: session.config.training.prompts_per_step])
    began = time.perf_counter()
    completions = _sample(
        session,
        prompts,
        session.objective.num_generations,
        "probe",
        session.config.rollout.max_completion_length,
        lambda done, total: observer.progress("probing", done, total),
    )
    seconds = time.perf_counter() - began
    opponents = session.opponents(prompts, "probe")
    probe = gather(prompts, completions, session.policy.tokenizer, session.rewarder, opponents)
    return _with_spread(session, probe), seconds


def _with_spread(session: Session, probe: Experience) -> Experience:
    """Remember the reward's spread, and shape the probe's rewards as those of every step will be."""
    scored = probe.rewards.raw[probe.rewards.scored]
    if len(scored) < 2 or scored.std() == 0:
        return probe
    found = Spread(float(scored.mean()), float(scored.std(ddof=1)), len(scored))
    session.rewarder.spread = broadcast_object_list([found])[0]
    return replace(probe, rewards=session.rewarder.shaped(probe.rewards, probe.completions))


def _sample(
    session: Session,
    prompts: list[RenderedPrompt],
    num_samples: int,
    purpose: str,
    max_length: int,
    progress: Progress | None = None,
) -> list[Completion]:
    return session.make_sampler().sample(
        [prompt.token_ids for prompt in prompts],
        num_samples=num_samples,
        max_length=max_length,
        temperature=session.config.rollout.temperature,
        seed=seed_for(session.config.training.seed, purpose),
        progress=progress,
    )


def _measured(
    session: Session, experience: Experience, reference: Reference | None = None, groups: int | None = None
) -> TokenRecord:
    return measure(
        experience,
        session.policy,
        reference or session.reference,
        temperature=session.config.rollout.temperature,
        per_batch=groups or session.updater.plan.groups_per_batch,
        step=0,
    )


@torch.no_grad()
def _logits_agree(session: Session, probe: Experience) -> CheckResult:
    """Hidden state times head against what the model itself says, at the first token of the first reply."""
    ids = torch.tensor([probe.prompts[0].token_ids], device=session.policy.device)
    model = session.policy.causal_lm
    own = model(input_ids=ids, use_cache=False).logits[0, -1].float()
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
    ours = (hidden @ session.policy.head.T).float() * logits_scale(model.config)
    largest = float((own - ours).abs().max() / own.abs().max())
    return CheckResult(
        "logits_agree",
        largest < LOGITS_LIMIT,
        f"hidden state times output layer gives the model's own logits within {largest:.2g}"
        if largest < LOGITS_LIMIT
        else f"hidden state times output layer is off the model's own logits by {largest:.2g} of the largest: it "
        "scales, caps or shifts them in a way that is not known here",
    )


def _kl_at_start(session: Session, record: TokenRecord) -> CheckResult:
    largest = float(np.abs(record.reverse_kl).max())
    if session.config.model.reference is not None:
        return CheckResult(
            "kl_at_start",
            True,
            f"the reference is another model; token KL up to {largest:.3g} nats at the start",
        )
    return CheckResult(
        "kl_at_start",
        largest == 0.0,
        "KL is exactly 0 at the start"
        if largest == 0.0
        else f"KL is {largest:.3g} nats at a token before any update, so that policy and reference differ "
        "already: another adapter, dtype or template",
    )


def _scores_repeat(session: Session, few: Experience) -> CheckResult:
    first, second = _measured(session, few), _measured(session, few)
    largest = float(np.abs(first.policy_logprobs - second.policy_logprobs).max())
    return CheckResult(
        "scores_repeat",
        largest == 0.0,
        "the same text scores the same twice (dropout is off)"
        if largest == 0.0
        else f"the same text scored twice differs by {largest:.3g} nats: dropout or another randomness is on",
    )


def _padding(session: Session, few: Experience) -> CheckResult:
    """Score the shortest and the longest group together, one padded to the other, and each alone."""
    together = _measured(session, few, groups=len(few.prompts))
    alone = [_measured(session, _selected(few, [g])) for g in range(len(few.prompts))]
    apart = np.concatenate([record.policy_logprobs for record in alone])
    largest = float(np.abs(together.policy_logprobs - apart).max())
    limit = PADDING_LIMIT[session.policy.dtype]
    return CheckResult(
        "padding",
        largest <= limit,
        f"padding moves a score by {largest:.2g} nats at most"
        + ("" if largest <= limit else f", more than {limit:g}: this model does not mask padding"),
    )


def _sampler_agrees(session: Session, few: Experience) -> CheckResult:
    with _perturbed(session):
        length = min(CHECKED_TOKENS, session.config.rollout.max_completion_length)
        completions = _sample(session, list(few.prompts), few.group_size, "perturbed", length)
        texts = [""] * len(completions)
        experience = Experience(few.prompts, completions, texts, few.rewards)
        record = _measured(session, experience)
    sampled = np.array([value for c in completions for value in c.logprobs])
    median, p99 = np.quantile(np.abs(sampled - record.policy_logprobs), [0.5, 0.99])
    limit = MISMATCH_LIMIT[session.policy.dtype]
    return CheckResult(
        "sampler_agrees",
        bool(p99 <= limit),
        f"with a perturbed policy, sampler and scorer differ by {median:.2g} (median) and {p99:.2g} (99 %) nats "
        "per token" + ("" if p99 <= limit else f", more than {limit:g}: they do not run the same model"),
    )


def _beta_has_gradient(session: Session, few: Experience) -> CheckResult:
    """A penalty without a gradient at a policy that has moved is no leash."""
    with _perturbed(session):
        record = _measured(session, few)
        norm = _penalty_gradient(session, few)
    kl = float(per_sequence(record.reverse_kl, few.lengths).mean())
    good = np.isfinite(norm) and norm > 0
    return CheckResult(
        "beta_has_gradient",
        bool(good),
        f"with a perturbed policy, KL is {kl:.3g} nats per sequence and its gradient's norm {norm:.3g}"
        + ("" if good else ": the penalty does not reach the trained weights"),
    )


def _penalty_gradient(session: Session, few: Experience) -> float:
    """Norm of the penalty's gradient to the trained weights."""
    groups = list(range(len(few.prompts)))
    states = reference_states(few, [groups], session.policy, session.reference)
    session.optimizer.zero()
    _, rows = session.updater.forward(few, groups, states, {})
    penalty = session.objective.penalty(rows)
    if penalty.requires_grad:
        penalty.mean().backward()  # type: ignore[no-untyped-call]
    norms = [gradient.norm() for gradient in session.optimizer.gradients()]
    session.optimizer.zero()
    return float(torch.stack(norms).norm()) if norms else 0.0


def _reward_varies(session: Session, probe: Experience) -> CheckResult:
    scored = probe.rewards.raw[probe.rewards.scored]
    if len(scored) == 0:
        return CheckResult("reward_varies", False, "the reward gave no score (None) to any of the samples")
    sd = _sd_within(session, probe)
    return CheckResult(
        "reward_varies",
        sd > 0,
        f"reward of the starting policy: mean {scored.mean():.3g} over {len(scored)} samples, sd {sd:.3g} "
        "among those of a prompt"
        if sd > 0
        else "all samples of a prompt are paid the same: there is nothing to learn from",
    )


def _start_controller(session: Session, observer: Observer, probe: Experience) -> None:
    """Begin at the beta that follows from the reward's spread."""
    if session.rewarder.spread is None:
        return
    sd = broadcast_object_list([_sd_within(session, probe)])[0]  # one for all processes, even if the reward is random
    kl = session.algorithm.kl
    beta = starting_beta(session.algorithm, sd, float(probe.lengths.mean()))
    session.controller, session.starting_beta = make_controller(kl, beta), beta
    why = "as set" if kl.beta is not None else "from the reward's spread and the target"
    if kl.beta is None and kl.target_nats_per_sequence is None and kl.target_nats_per_token is None:
        why = "the default"
    observer.fact(f"beta       starts at {beta:.4g} reward per nat ({why})")


def _sd_within(session: Session, probe: Experience) -> float:
    """Standard deviation of the shaped reward among samples of a prompt: what advantages, and so beta, are made of."""
    algorithm = session.algorithm
    if isinstance(algorithm, Grpo) and algorithm.scale_rewards == "group":
        return 1.0
    if probe.group_size == 1:  # advantages are against the critic, over all samples
        scored = probe.rewards.shaped[probe.rewards.scored]
        return float(scored.std(ddof=1)) if len(scored) > 1 else 0.0
    groups = probe.rewards.shaped.reshape(-1, probe.group_size)
    full = groups[(~np.isnan(groups)).sum(axis=1) >= 2]
    return float(np.sqrt(np.nanvar(full, axis=1, ddof=1).mean())) if len(full) else 0.0


def _odd_answers(session: Session, observer: Observer, probe: Experience) -> None:
    """What the reward pays for answers that are no answers."""
    if session.rewarder.pairwise:
        return  # an answer on its own has no pay
    prompts = list(probe.prompts)
    opponents = session.opponents(prompts, "probe")
    kinds = {
        "empty": ["" for _ in prompts],
        "constant": ["the the the the" for _ in prompts],
        "echoed": [_question(prompt) for prompt in prompts],
    }
    stop = Completion((session.policy.tokenizer.stop_ids[0],), (0.0,), True)
    paid = []
    for kind, texts in kinds.items():
        try:
            raw = session.rewarder(prompts, [stop] * len(prompts), texts, opponents).raw
        except DataError as error:
            paid.append(f"{kind} fails ({error})")
            continue
        paid.append(f"{kind} {np.nanmean(raw):.3g}" if not np.isnan(raw).all() else f"{kind} no score")
    scored = probe.rewards.raw[probe.rewards.scored]
    mean = f"{scored.mean():.3g}" if len(scored) else "no score"
    observer.fact(f"reward     pays {', '.join(paid)} for odd answers; {mean} for the policy's own")


def _update_seconds(session: Session, few: Experience, tokens: int) -> float:
    """Time of scoring and updating a step's tokens: about twice that of scoring them."""
    began = time.perf_counter()
    _measured(session, few)
    return 2 * (time.perf_counter() - began) * tokens / max(1, int(few.lengths.sum()))


def _question(prompt: RenderedPrompt) -> str:
    """The text that was asked, without template."""
    asked = prompt.prompt
    return asked.text if asked.text is not None else str((asked.messages or ({},))[-1].get("content", ""))


def _cost(session: Session, observer: Observer, seconds_per_step: float) -> None:
    training = session.config.training
    parameters = sum(p.numel() for _, p in session.policy.trained())
    weights = sum(p.nbytes for p in session.policy.causal_lm.parameters())
    memory = weights + session.reference.extra_bytes + 16 * parameters
    if session.policy.sampling is not None:
        memory += session.policy.sampling.extra_bytes
    disk = kept_at_the_end(training) * 16 * parameters
    minutes = seconds_per_step * training.steps / 60
    observer.fact(
        f"cost       {parameters / 1e6:.1f}M weights to train; about {memory / 1e9:.1f} GB of weights and optimiser, "
        f"{disk / 1e9:.2f} GB on disk, {minutes:.0f} min for {training.steps} steps"
    )


@contextlib.contextmanager
def _perturbed(session: Session) -> Iterator[None]:
    """Within the block the trained weights carry noise; afterwards they are what they were, to the bit.

    An adapter is perturbed in its B matrices; a model trained whole, in its vectors (norms).
    """
    trained = session.policy.trained()
    whole = session.policy.peft_model is None
    chosen = [p for name, p in trained if (p.dim() == 1 if whole else "lora_B" in name)]
    saved = [p.detach().clone() for p in chosen]
    generator = torch.Generator().manual_seed(seed_for(session.config.training.seed, "perturbation"))
    with torch.no_grad():
        for p in chosen:
            p.add_(PERTURBATION * torch.randn(p.shape, generator=generator).to(p))
    try:
        yield
    finally:
        with torch.no_grad():
            for p, value in zip(chosen, saved, strict=True):
                p.copy_(value)


def _extremes(experience: Experience) -> list[int]:
    """The group with the shortest prompt and the one with the longest."""
    order = sorted(range(len(experience.prompts)), key=lambda g: len(experience.prompts[g].token_ids))
    return [order[0], order[-1]]


def _selected(experience: Experience, groups: Sequence[int]) -> Experience:
    """Some groups of an experience, each completion cut to `CHECKED_TOKENS`."""
    size = experience.group_size
    rows = [g * size + i for g in groups for i in range(size)]
    kept = [experience.completions[row] for row in rows]
    return Experience(
        [experience.prompts[g] for g in groups],
        [Completion(c.token_ids[:CHECKED_TOKENS], c.logprobs[:CHECKED_TOKENS], c.stopped) for c in kept],
        [experience.texts[row] for row in rows],
        experience.rewards,
    )
