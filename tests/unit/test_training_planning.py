"""What a plan samples and scores: the reference, at the run's temperature, with rewards shaped as in a step."""

import numpy as np
import pytest
from tiny_model import save_tiny_model
from tiny_run import settings

from kleash.training.planning import plan_run
from kleash.training.session import load_policy


def planned(config, betas=(1.0,), samples=16, prompts=6, progress=lambda *_: None):
    return plan_run(config, betas, samples=samples, prompts=prompts, progress=progress)


def test_prompts_are_those_to_train_on_chosen_by_the_seed(tiny_model_dir, tmp_path):
    config = settings(tiny_model_dir, tmp_path, "prompts.held_out=4")
    chosen = {sample.prompt for sample in planned(config, prompts=3).favoured}
    assert len(chosen) == 3
    assert planned(config, prompts=99).prompts == 8
    other = settings(tiny_model_dir, tmp_path, "prompts.held_out=4", "training.seed=3")
    assert {sample.prompt for sample in planned(other, prompts=3).favoured} != chosen


def test_progress_is_told_to_its_end(tiny_model_dir, tmp_path):
    told = []
    planned(settings(tiny_model_dir, tmp_path), progress=lambda *step: told.append(step))
    phases = [phase for phase, _, _ in told]
    assert set(phases) == {"sampling the reference", "scoring"}
    assert told[-1] == ("scoring", 6, 6)
    assert [done for phase, done, total in told if phase == "sampling the reference"][-1] > 0


def test_samples_are_of_the_reference_and_not_of_the_policy(tiny_model_dir, tmp_path):
    other = save_tiny_model(tmp_path / "other", seed=1)
    own = planned(settings(other, tmp_path))
    found = planned(settings(tiny_model_dir, tmp_path, f"model.reference={other}"))
    assert [s.completion for s in found.favoured] == [s.completion for s in own.favoured]
    assert found.model == str(other)
    assert planned(settings(tiny_model_dir, tmp_path)).favoured != own.favoured


def test_length_and_temperature_are_the_runs(tiny_model_dir, tmp_path):
    short = planned(settings(tiny_model_dir, tmp_path, "rollout.max_completion_length=3"))
    assert short.start.length.value <= 3
    cold = planned(settings(tiny_model_dir, tmp_path, "rollout.temperature=0.05"), betas=(5.0,))
    warm = planned(settings(tiny_model_dir, tmp_path, "rollout.temperature=1.5"), betas=(5.0,))
    assert cold.spread < warm.spread


def test_rewards_are_weighted_as_they_are_shaped_and_told_as_they_are(tiny_model_dir, tmp_path):
    """Rescaled, the reward has sd 1 over all samples: beta = 1 then means what beta = sd meant before."""
    plain = planned(settings(tiny_model_dir, tmp_path))
    rescaled = planned(settings(tiny_model_dir, tmp_path, "reward.rescale=true"))
    assert rescaled.start == plain.start
    sd = plain.spread / rescaled.spread
    at_sd = planned(settings(tiny_model_dir, tmp_path), betas=(sd,)).favoured
    np.testing.assert_allclose([s.factor for s in rescaled.favoured], [s.factor for s in at_sd], rtol=1e-9)
    assert [s.reward for s in rescaled.favoured] == [s.reward for s in at_sd]
    clipped = planned(settings(tiny_model_dir, tmp_path, "reward.clip=[0.0,0.1]"))
    assert clipped.spread < plain.spread
    assert clipped.start == plain.start


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["algorithm.kl.scope=token"], "follows a partial gradient, which ends at another optimum"),
        (["model.reference_ema=0.1"], "the run's reference moves"),
        (["model.reference_reset_every=5"], "the run's reference moves"),
    ],
)
def test_what_makes_a_run_end_elsewhere_is_noted(tiny_model_dir, tmp_path, overrides, said):
    (note,) = planned(settings(tiny_model_dir, tmp_path, *overrides)).notes
    assert said in note
    assert planned(settings(tiny_model_dir, tmp_path)).notes == ()


def test_no_weight_changes(tiny_model_dir, tmp_path, monkeypatch):
    """The policy that was loaded is still the reference afterwards, and no run directory was made."""
    loaded = []

    def remembered(*arguments, **named):
        loaded.append(load_policy(*arguments, **named))
        before.extend(p.detach().clone() for p in loaded[0].causal_lm.parameters())
        return loaded[-1]

    before = []
    monkeypatch.setattr("kleash.training.planning.load_policy", remembered)
    planned(settings(tiny_model_dir, tmp_path))
    assert all((p == q).all() for p, q in zip(loaded[0].causal_lm.parameters(), before, strict=True))
    assert not (tmp_path / "runs").exists()
