import re

import numpy as np
import pytest
from rule_findings import findings, rows, wobbling

from kleash.config.describe import run_settings
from kleash.monitor.rule import Facts
from kleash.monitor.rules.table import make_rules

SETTINGS = {entry.key for entry in run_settings()}
TABLES = {key.split(".")[0] for key in SETTINGS}
DOTTED = re.compile(r"\b([a-z_]+(?:\.[a-z_]+)+)\b(?!\()")

SEEN = {
    "hacking/signature": rows(
        reward__proxy=[0.2] * 5 + [0.9] * 5,
        kl__exact_per_token=[0.01] * 5 + [0.9] * 5,
        entropy__per_token=[3.0] * 5 + [2.0] * 5,
    ),
    "hacking/flat_reward": rows(
        reward__proxy=wobbling(0.6, 150, 0.1), kl__exact_per_token=[*wobbling(0.1, 100), *wobbling(0.4, 50)]
    ),
    "hacking/gold_split": rows(reward__proxy=0.01 * np.arange(100), reward__gold=-0.01 * np.arange(100)),
    "entropy/collapse": rows(entropy__per_token=[3.0] * 10 + [1.0] * 3),
    "length/blow_up": rows(length__mean=[100.0] * 10 + [900.0] * 3),
    "length/collapse": rows(length__mean=[100.0] * 10 + [9.0] * 3),
    "length/stop_rate": rows(length__stop_rate=[0.9] * 10 + [0.1] * 3),
    "text/repetition": rows(text__repeated_4gram=[0.0] * 10 + [0.5] * 3),
    "text/diversity": rows(text__distinct_2=[0.9] * 10 + [0.3] * 3),
    "text/same_answer": rows(text__distinct_2=[0.9] * 10 + [0.2] * 3, text__repeated_4gram=[0.0] * 13),
    "reward/no_signal": rows(reward__group_sd=[0.0] * 10),
    "control/saturated": rows(control__saturated=np.arange(30)),
    "control/unreachable": rows(
        control__saturated=np.arange(60), control__target=[3.0] * 60, kl__exact_per_sequence=[9.0] * 60
    ),
    "progress/stalled": rows(
        reward__proxy=wobbling(0.6, 100),
        kl__exact_per_sequence=wobbling(6.0, 100),
        control__beta=[0.1] * 100,
        reward__group_sd=[0.3] * 100,
    ),
    "sampler/mismatch": rows(sampler__kl_per_token=[1.0] * 10),
    "ratio/large": rows(ratio__max=[1e3] * 3),
    "optim/gradient": rows(optim__grad_norm=[1.0] * 25 + [99.0]),
    "run/non_finite": [{"loss/policy": float("nan")}],
    "preference/both_falling": rows(
        preference__chosen_drift=wobbling(-5.0, 20), preference__rejected_drift=wobbling(-6.0, 20)
    ),
}
"""What makes a rule find something, by the rule's name."""


@pytest.mark.parametrize("name", SEEN)
def test_where_nothing_new_is_measured_the_last_finding_stands(name):
    facts = Facts(target_key="kl/exact_per_sequence") if name == "control/unreachable" else Facts()
    rule = next(rule for rule in make_rules() if rule.name == name)
    found = findings(rule, SEEN[name] + [{}, {"time/total": 1.0}] * 20, facts)
    assert found[len(SEEN[name]) - 1] is not None
    assert found[len(SEEN[name]) :] == [found[len(SEEN[name]) - 1]] * 40


def test_every_setting_that_a_rule_names_exists():
    named = set()
    for rule in make_rules():
        texts = [rule.advice, *(text for cause in rule.causes for text in (cause.text, cause.check))]
        named |= {name for text in texts for name in DOTTED.findall(text) if name.split(".")[0] in TABLES}
    assert {"monitor.loosen", "algorithm.kl.target_nats_per_sequence", "training.learning_rate"} <= named
    tables = {key[:end] for key in SETTINGS for end in (dot.start() for dot in re.finditer(r"\.", key))}
    assert named - SETTINGS - tables == set()
