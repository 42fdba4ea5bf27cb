"""Which trainer wrote a log, by the columns that it has; and why a log of that trainer may lack a KL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kleash.errors import DataError, near_match
from kleash.metrics import FUNCTION_PREFIX, HELD_OUT, METRICS
from kleash.monitor.logs import mappings as m

UNKNOWN = "unknown trainer"
KLEASH = "Kleash"

MEASURE = "`kleash gauge REFERENCE CHECKPOINT` measures it afterwards"
_CALLBACK = f"KleashCallback measures it during a run, {MEASURE}"
_HF_PREFIX, _HF_HELD_OUT = "train/", (HELD_OUT, "eval_")


@dataclass(frozen=True)
class Trainer:
    """A trainer and the columns that tell it.

    Args:
        name: as `--trainer` takes it and rows of `mappings.ROWS` name it.
        marks: columns that its logs have; alternatives are divided by `|`.
        no_kl: why there may be no KL to the reference in its log, and what to do.
        tag: what its model card carries; empty where it writes none.
        prefix: what trackers put before its columns.
        held_out: what it puts before columns of an evaluation.
        tried: the release that was run for real and read; empty: names taken from its source and documentation.
        kl_needs_beta: whether it logs a KL to the reference only where beta is above 0.
        before_updates: the number of the step that it measures before any update.
    """

    name: str
    marks: tuple[str, ...]
    no_kl: str
    tag: str = ""
    prefix: str = ""
    held_out: tuple[str, ...] = ()
    tried: str = ""
    kl_needs_beta: bool = False
    before_updates: int = 0


def _hf(name: str, *marks: str, no_kl: str, tag: str = "", tried: str = "", kl_needs_beta: bool = False) -> Trainer:
    return Trainer(name, marks, no_kl, tag, _HF_PREFIX, _HF_HELD_OUT, tried, kl_needs_beta, before_updates=1)


_BETA_ZERO = f"TRL computes it only for beta > 0, and beta is 0 unless it is set. {_CALLBACK}"
_GIVEN_TEXT = (
    "this trainer learns from given completions and samples none: its rewards are beta times a log-ratio on them, "
    f"which is no KL. {_CALLBACK}"
)
_NO_REFERENCE = f"this trainer has no reference model. {_CALLBACK}"
_UNEXPECTED = f"its column is not in the log. {_CALLBACK}"

_SAMPLES = ("completions/mean_length|completion_length", "reward")
_PAIRS = ("rewards/chosen", "logps/chosen")

TRAINERS: tuple[Trainer, ...] = (
    _hf(m.GRPO, *_SAMPLES, no_kl=_BETA_ZERO, tag="grpo", tried="1.16.0", kl_needs_beta=True),
    _hf(m.RLOO, *_SAMPLES, no_kl=_BETA_ZERO, tag="rloo", tried="1.16.0", kl_needs_beta=True),
    _hf(m.EITHER, *_SAMPLES, no_kl=_BETA_ZERO, tried="1.16.0", kl_needs_beta=True),
    _hf(m.XPO, "loss/xpo", no_kl=_UNEXPECTED, tag="xpo"),
    _hf(m.NASH, "loss/kl", "loss/score", no_kl=_UNEXPECTED, tag="nash-md"),
    _hf(m.ONLINE, "objective/kl", *_PAIRS, no_kl=_UNEXPECTED, tag="online-dpo", tried="1.16.0"),
    _hf(m.PPO, "objective/rlhf_reward", "objective/kl", no_kl=_UNEXPECTED, tag="ppo", tried="1.12.0"),
    _hf(m.OLD_PPO, "ppo/mean_scores|ppo/mean_non_score_reward|objective/kl_dist", no_kl=_UNEXPECTED),
    _hf(m.KTO, "kl", *_PAIRS, no_kl=f"the column kl is KTO's baseline; {_GIVEN_TEXT}", tag="kto", tried="1.16.0"),
    _hf(m.NO_REFERENCE, "nll_loss|log_odds_ratio", *_PAIRS, no_kl=_NO_REFERENCE, tag="orpo"),
    _hf(m.NO_REFERENCE, "nll_loss|log_odds_ratio", *_PAIRS, no_kl=_NO_REFERENCE, tag="cpo"),
    _hf(m.DPO, *_PAIRS, no_kl=_GIVEN_TEXT, tag="dpo", tried="1.16.0"),
    _hf(m.REWARD, "mean_reward", "margin", no_kl="a reward model has no policy.", tag="reward-trainer"),
    _hf(m.SFT, "mean_token_accuracy", no_kl=_NO_REFERENCE, tag="sft"),
    Trainer("verl", ("critic/score/mean|critic/rewards/mean|actor/pg_loss",), (
        "verl computes it only with algorithm.use_kl_in_reward, or as actor/kl_loss with use_kl_loss, whose unit "
        f"follows loss_agg_mode. {MEASURE}")),
    Trainer("OpenRLHF", ("policy_loss", "actor_lr|logprobs_diff|ppo_kl"), (
        f"OpenRLHF computes it only with a reference, init_coef > 0. {MEASURE}"), prefix="train/", kl_needs_beta=True),
    Trainer("NeMo-RL", ("gen_kl_error|token_mult_prob_error",), (
        f"NeMo-RL computes it only with reference_policy_kl_penalty > 0. {MEASURE}"
        ), prefix="train/", kl_needs_beta=True),
    Trainer("tinker", ("kl_policy_base|optim/kl_sample_train_v1|env/all/reward/total",), (
        f"tinker computes it only with kl_penalty_coef > 0. {MEASURE}"), kl_needs_beta=True),
    Trainer("prime-rl", ("mismatch_kl/all/mean|mismatch_kl/mean|train/agg/all/agent/reward/mean",), (
        f"prime-rl has no reference model in RL: mismatch_kl is its sampler against its trainer. {MEASURE}")),
    Trainer(m.OPEN_INSTRUCT, ("objective/kl0_avg|objective/kl1_avg",), _UNEXPECTED),
    Trainer(m.OLD_OPEN_INSTRUCT, ("objective/kl_avg",), _UNEXPECTED),
    Trainer("SkyRL", ("policy/policy_kl|loss/avg_kl|reward/avg_raw_reward",), (
        f"SkyRL computes it only with use_kl_loss or use_kl_in_reward. {MEASURE}")),
    Trainer("trlx", ("policy/sqrt_kl|kl_ctl_value",), _UNEXPECTED),
    Trainer("torchtune", ("rlhf_reward", "kl_reward|approx_policy_kl"), _UNEXPECTED),
    Trainer("lm-human-preferences", ("objective/score", "objective/score_total|objective/kl_coef"), (
        _UNEXPECTED), prefix="ppo/"),
    _hf(m.HF, "epoch", "learning_rate", no_kl=_NO_REFERENCE),
)  # fmt: skip

NO_TRAINER = Trainer(UNKNOWN, (), f"no column of the log is known as one. {MEASURE}")
_OF_KLEASH = Trainer(KLEASH, (), f"the run measures none. {MEASURE}", held_out=(HELD_OUT,), tried="this release")

_KLEASH_MARKS = frozenset(
    {"reward/proxy", "kl/exact_per_sequence", "preference/chosen_drift", "preference/chosen_score", "loss/sft"}
)


class Place(NamedTuple):
    """Where a column stands with its trainer: its own name for it, and whether it is of an evaluation."""

    name: str
    held_out: bool


class Recognised(NamedTuple):
    """A trainer, why it is thought to be the one, and the place of each column."""

    trainer: Trainer
    why: str
    places: Mapping[str, Place]


def recognise(columns: Collection[str], tag: str = "", tag_from: str = "", name: str | None = None) -> Recognised:
    """Find the trainer that has written columns of these names.

    Args:
        columns: as they are in the log.
        tag: of TRL's trainer, where something besides the columns says it.
        tag_from: what says it.
        name: the trainer that the user says it is.

    Raises:
        DataError: no trainer of this name is known.
    """
    if name is not None:
        return _named(name, columns)
    if any(column.removeprefix(HELD_OUT) in _KLEASH_MARKS for column in columns):
        return Recognised(_OF_KLEASH, "its columns are keys of Kleash's catalogue", _places(_OF_KLEASH, columns, ""))
    for trainer in TRAINERS:
        if trainer.tag and trainer.tag == tag:
            why = f"{tag_from} says {tag}"
            return Recognised(trainer, why, _places(trainer, columns, trainer.prefix))
    for trainer in TRAINERS:
        if trainer.name in (m.GRPO, m.RLOO):
            continue  # alike in their columns: the model card alone tells them apart
        for prefix in dict.fromkeys(("", trainer.prefix)):
            places = _places(trainer, columns, prefix)
            seen = {place.name for place in places.values()}
            found = [_first(mark.split("|"), seen) for mark in trainer.marks]
            if all(found):
                why = f"it has {', '.join(prefix + str(column) for column in found)}"
                return Recognised(trainer, why, places)
    return Recognised(NO_TRAINER, "", _places(NO_TRAINER, columns, ""))


def trainer_names() -> list[str]:
    """Return the names that `--trainer` takes."""
    return list(dict.fromkeys([*(trainer.name for trainer in TRAINERS), KLEASH]))


def trainer_of(name: str) -> Trainer:
    """Return the trainer of a name; one that is unknown has nothing particular."""
    return next((trainer for trainer in (*TRAINERS, _OF_KLEASH) if trainer.name == name), NO_TRAINER)


def catalogue_key(name: str) -> bool:
    """Whether a name is a key of the catalogue, with or without `eval/`."""
    bare = name.removeprefix(HELD_OUT)
    return bare in METRICS or bare.startswith(FUNCTION_PREFIX)


def _named(name: str, columns: Collection[str]) -> Recognised:
    known = {trainer.name.lower(): trainer for trainer in (*TRAINERS, _OF_KLEASH)}
    trainer = known.get(name.lower())
    if trainer is None:
        names = ", ".join(f"'{known}'" for known in trainer_names())
        raise DataError(f"--trainer '{name}' is not known.{near_match(name, trainer_names())} There are: {names}.")
    prefixed = bool(trainer.prefix) and any(column.startswith(trainer.prefix) for column in columns)
    return Recognised(trainer, "--trainer says so", _places(trainer, columns, trainer.prefix if prefixed else ""))


def _places(trainer: Trainer, columns: Iterable[str], prefix: str) -> dict[str, Place]:
    return {column: _place(trainer, column, prefix) for column in columns}


def _place(trainer: Trainer, column: str, prefix: str) -> Place:
    start = next((start for start in trainer.held_out if column.startswith(start)), None)
    if start is not None:
        return Place(column.removeprefix(start), True)
    return Place(column.removeprefix(prefix), False)


def _first(names: Iterable[str], seen: Collection[str]) -> str | None:
    return next((name for name in names if name in seen), None)
