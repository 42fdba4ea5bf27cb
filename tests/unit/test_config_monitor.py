"""The `[monitor]` table: what cannot be done about an alarm is refused at load."""

import pytest

from kleash.config.loader import load, to_dict
from kleash.config.monitor_checks import address_of, check_ways_to_tell
from kleash.config.schema import Monitor
from kleash.errors import ConfigError

SAMPLING = ["model=demo", "prompts=demo", "reward=rewards:score"]
COMPARING = ["model=demo", "comparisons=pairs.jsonl"]
TARGET = "algorithm.kl.target_nats_per_sequence=6"
TIGHTEN = 'monitor.ladder=["tighten"]'


def failure(*overrides):
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    return str(caught.value).removeprefix("the command line: ")


def test_by_default_a_run_only_tells():
    monitor = load(None, SAMPLING).config.monitor
    assert (monitor.ladder, monitor.ignore, monitor.loosen, monitor.webhook, monitor.command) == (
        (),
        (),
        None,
        None,
        None,
    )
    assert (monitor.act_on, monitor.notify, monitor.patience, monitor.tighten_by) == ("critical", "warning", 10, 0.7)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [*SAMPLING, "algorithm.kl.beta=0", TIGHTEN],
            "monitor.ladder has 'tighten', and algorithm.kl.beta is fixed at 0: 0 stays 0 whatever it is divided by."
            " Give a beta above 0 or a target, or leave 'tighten' out.",
        ),
        (
            [*SAMPLING, "algorithm.type=online_dpo", TIGHTEN],
            "monitor.ladder has 'tighten', and algorithm.kl.beta is fixed at 0 (the default of algorithm.type ="
            " 'online_dpo'): 0 stays 0 whatever it is divided by. Give a beta above 0 or a target, or leave 'tighten'"
            " out.",
        ),
        (
            [*COMPARING, "algorithm.type=dpo", TIGHTEN],
            "monitor.ladder has 'tighten', and algorithm.type = 'dpo' has no leash to shorten: beta is part of what DPO"
            " learns towards, and moving it would change that in mid-run. Leave 'tighten' out; 'roll_back' and 'stop'"
            " work with every algorithm.",
        ),
        (
            [*COMPARING, "algorithm.type=reward_model", TIGHTEN],
            "monitor.ladder has 'tighten', and algorithm.type = 'reward_model' has no leash to shorten: it has no KL"
            " penalty. Leave 'tighten' out; 'roll_back' and 'stop' work with every algorithm.",
        ),
        (
            [*SAMPLING, 'monitor.ladder=["stop", "roll_back"]'],
            "monitor.ladder has 'roll_back' after 'stop', which ends the run. Put 'stop' last.",
        ),
        (
            [*SAMPLING, "monitor.loosen={raise_by=1, limit=9}"],
            "monitor.loosen raises the target of algorithm.kl.controller.type = 'target', and this run has no such"
            " target. Remove the table, or give algorithm.kl.target_nats_per_sequence or target_nats_per_token.",
        ),
        (
            [*SAMPLING, "monitor.webhook=file:///etc/passwd"],
            "monitor.webhook = 'file:///etc/passwd' is no web address. Give one that begins with http:// or https://;"
            " monitor.command runs a program.",
        ),
        (
            [*SAMPLING, "monitor.webhook=https://"],
            "monitor.webhook = 'https://' is no web address. Give one that begins with http:// or https://;"
            " monitor.command runs a program.",
        ),
        (
            [*SAMPLING, "monitor.webhook=https://ann:secret@example.org/x"],
            "monitor.webhook has a user and a password in its address, and they would not be sent. Give an address"
            " without them; monitor.command can run a program that sends them.",
        ),
        (
            [*SAMPLING, "monitor.webhook=https://example.org/x", "monitor.webhook_env=HOOK"],
            "monitor.webhook and monitor.webhook_env are both set, and a run has one webhook. Remove one.",
        ),
        (
            [*SAMPLING, TARGET, "monitor.loosen={raise_by=1, limit=3}"],
            "monitor.loosen.limit = 3 is not above the target of 6 (algorithm.kl.target_nats_per_sequence): the target"
            " could never be raised. Give a limit above 6, or remove the table.",
        ),
        (
            [*SAMPLING, "algorithm.kl.target_nats_per_token=0.1", "monitor.loosen={raise_by=1, limit=0.1}"],
            "monitor.loosen.limit = 0.1 is not above the target of 0.1 (algorithm.kl.target_nats_per_token): the target"
            " could never be raised. Give a limit above 0.1, or remove the table.",
        ),
        (
            [*SAMPLING, "monitor.command=say 'hello"],
            "monitor.command = 'say 'hello' cannot be split into words (No closing quotation). Close its quotes.",
        ),
        (
            [*SAMPLING, 'monitor.command=" "'],
            "monitor.command = ' ' names no program. Give one, or leave it out.",
        ),
        (
            [*SAMPLING, "monitor.act_on=warning"],
            'monitor.act_on = "warning" has no effect: monitor.ladder is empty, so that nothing is done about alarms.'
            " Give a ladder, or remove it.",
        ),
        (
            [*SAMPLING, "monitor.patience=3"],
            "monitor.patience = 3 has no effect: monitor.ladder is empty, so that nothing is done about alarms. Give a"
            " ladder, or remove it.",
        ),
        (
            [*SAMPLING, 'monitor.ladder=["stop"]', "monitor.tighten_by=0.5"],
            "monitor.tighten_by = 0.5 has no effect: monitor.ladder has no 'tighten'. Add it, or remove this.",
        ),
        (
            [*SAMPLING, "monitor.notify=critical"],
            'monitor.notify = "critical" has no effect: monitor.webhook, webhook_env and command are not set:'
            " nothing is sent. Give one, or remove it.",
        ),
        (
            [*SAMPLING, TARGET, "prompts.held_out=0", "monitor.loosen={raise_by=1, limit=9}"],
            "monitor.loosen.limit = 9.0 has no effect: prompts.held_out = 0 leaves nothing to evaluate on. Hold some"
            " out, or remove it.\n"
            "monitor.loosen.raise_by = 1.0 has no effect: prompts.held_out = 0 leaves nothing to evaluate on. Hold some"
            " out, or remove it.",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(overrides, message):
    assert failure(*overrides) == message


@pytest.mark.parametrize(
    "overrides",
    [
        [TARGET, 'monitor.ladder=["tighten", "tighten", "roll_back", "stop"]', "monitor.act_on=warning"],
        ["algorithm.kl.beta=0.1", TIGHTEN],
        [TIGHTEN],
        ["algorithm.type=online_dpo", "algorithm.kl.beta=0.1", TIGHTEN],
        [TARGET, "monitor.loosen={raise_by=1, limit=9}", "monitor.patience=3"],
        [
            "monitor.webhook=http://localhost:8080/alarm",
            "monitor.command=notify-send Kleash",
            "monitor.notify=critical",
        ],
    ],
)
def test_what_can_work_is_taken_and_comes_back_from_the_record(overrides):
    config = load(None, [*SAMPLING, *overrides]).config
    assert load(None, base=to_dict(config)).config == config


def test_a_rung_that_does_not_exist():
    assert failure(*SAMPLING, 'monitor.ladder=["tightn"]').startswith("monitor.ladder")


def test_loosening_says_where_it_went():
    assert failure(*SAMPLING, TARGET, "algorithm.kl.controller.loosen.raise_by=1") == (
        "algorithm.kl.controller.loosen.raise_by = 1 on the command line is not a setting. That is its name in earlier"
        " versions of Kleash; here it is monitor.loosen.raise_by."
    )


@pytest.mark.parametrize("loosen", [None, {"raise_by": 1.0, "limit": 9.0, "patience": 3, "min_gain": 0.01}])
def test_settings_that_an_older_kleash_stored_are_read(loosen):
    config = load(None, [*SAMPLING, TARGET, 'algorithm.kl.controller={type="target", ramp_steps=3}']).config
    stored = to_dict(config)
    del stored["monitor"]
    stored["algorithm"]["kl"]["controller"]["loosen"] = loosen
    found = load(None, base=stored).config
    assert (found.monitor.loosen and found.monitor.loosen.model_dump()) == loosen
    assert found.algorithm == config.algorithm


def test_a_program_that_is_not_on_this_machine(tmp_path):
    with pytest.raises(ConfigError) as caught:
        check_ways_to_tell(Monitor(command="nosuchprogram -x"))
    assert str(caught.value) == (
        "monitor.command names 'nosuchprogram', which is not on the PATH. Install it, or give its full path."
    )
    script = tmp_path / "tell.sh"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match="is not on the PATH"):
        check_ways_to_tell(Monitor(command=str(script)))
    script.chmod(0o755)
    check_ways_to_tell(Monitor(command=f"{script} -x"))


def test_an_address_from_the_environment(monkeypatch):
    monitor = Monitor(webhook_env="KLEASH_TEST_HOOK")
    monkeypatch.delenv("KLEASH_TEST_HOOK", raising=False)
    with pytest.raises(ConfigError) as caught:
        check_ways_to_tell(monitor)
    assert str(caught.value) == (
        "monitor.webhook_env names the environment variable KLEASH_TEST_HOOK, which is not set. Set it to the webhook's"
        " address, or leave it out."
    )
    for value in ("S3CRET", "https://ann:S3CRET@example.org/", ""):
        monkeypatch.setenv("KLEASH_TEST_HOOK", value)
        with pytest.raises(ConfigError, match=r"which holds no web address \(its value is not shown\)") as caught:
            check_ways_to_tell(monitor)
        assert "S3CRET" not in str(caught.value)
    monkeypatch.setenv("KLEASH_TEST_HOOK", "https://example.org/x")
    check_ways_to_tell(monitor)
    assert address_of(monitor) == "https://example.org/x"
    assert address_of(Monitor(webhook="http://a.org")) == "http://a.org"
    assert address_of(Monitor()) is None
