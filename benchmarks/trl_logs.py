"""What TRL's trainers write, from real runs of a few steps: `python benchmarks/trl_logs.py OUT [NAME ...]`.

Each name below becomes a folder in OUT, with a checkpoint every two steps: `trainer_state.json` there is what
`kleash audit` reads. SmolLM2-135M-Instruct, LoRA, one CPU thread, about half a minute a name. The logs in
tests/golden/trl come from here.

grpo_beta0        GRPO without a KL penalty: TRL loads no reference model and logs no KL
grpo_beta         GRPO with beta 0.05
grpo_completions  the same with log_completions: a Parquet file of samples a step
grpo_tensorboard  the same with a TensorBoard event file
rloo              RLOO with beta 0.05: the KL is part of the reward
dpo, kto          preferences: implied rewards, log-probabilities; KTO logs a KL that is none to the reference
online_dpo        trl.experimental: the objective/... names of the old PPO trainer
ppo               trl.experimental of TRL 1.12, the last release that has PPO

Needs `pip install 'kleash[bench,demo,logs]'`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from kleash.demo.sentiment import positive
from kleash.models.names import resolve

STEPS = 6
MAX_LENGTH = 12
BETA = 0.05
SUBJECTS = ("film", "dinner", "train ride", "concert", "museum", "hotel", "book", "walk")
CHOSEN, REJECTED = " lovely, and I would go again tomorrow.", " dull, and I will not go again."


def shared(folder: Path) -> dict[str, Any]:
    """Arguments that every trainer gets."""
    return {
        "output_dir": str(folder),
        "max_steps": STEPS,
        "save_steps": 2,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }


def prompts() -> list[str]:
    """Beginnings to continue."""
    return [f"We all thought that the {subject} was" for subject in SUBJECTS]


def preferences() -> Dataset:
    """Pairs of answers to the prompts."""
    return Dataset.from_dict(
        {"prompt": prompts(), "chosen": [CHOSEN] * len(SUBJECTS), "rejected": [REJECTED] * len(SUBJECTS)}
    )


def labels() -> Dataset:
    """Answers with a thumb up, every fourth with a thumb down."""
    completions = [CHOSEN if i % 4 < 3 else REJECTED for i in range(len(SUBJECTS))]
    verdicts = [i % 4 < 3 for i in range(len(SUBJECTS))]
    return Dataset.from_dict({"prompt": prompts(), "completion": completions, "label": verdicts})


def lora() -> LoraConfig:
    """A small adapter: the reference is the model with it switched off."""
    return LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")


def model() -> str:
    """The demo model."""
    return resolve("demo")


def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Share of positive words."""
    return positive(prompts, completions)


def grpo(folder: Path, **settings: Any) -> None:
    """GRPO; the settings are added to the shared ones."""
    config = trl.GRPOConfig(
        **shared(folder) | {"num_generations": 4, "max_completion_length": MAX_LENGTH, "beta": BETA} | settings
    )
    trl.GRPOTrainer(
        model=model(),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts()}),
        peft_config=lora(),
    ).train()


def rloo(folder: Path) -> None:
    """RLOO."""
    config = trl.RLOOConfig(**shared(folder), num_generations=4, max_completion_length=MAX_LENGTH, beta=BETA)
    trl.RLOOTrainer(
        model=model(),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts()}),
        peft_config=lora(),
    ).train()


def dpo(folder: Path) -> None:
    """DPO on two pairs a step."""
    config = trl.DPOConfig(**shared(folder) | {"per_device_train_batch_size": 2}, beta=0.1)
    trl.DPOTrainer(model=model(), args=config, train_dataset=preferences(), peft_config=lora()).train()


def kto(folder: Path) -> None:
    """KTO on four labelled answers a step."""
    config = trl.KTOConfig(**shared(folder), beta=0.1, train_sampling_strategy="sequential")
    trl.KTOTrainer(model=model(), args=config, train_dataset=labels(), peft_config=lora()).train()


def online_dpo(folder: Path) -> None:
    """Online DPO: two answers a prompt, the better one by reward is chosen."""
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    config = OnlineDPOConfig(
        **shared(folder) | {"per_device_train_batch_size": 2}, beta=0.1, max_new_tokens=MAX_LENGTH, max_length=128
    )
    OnlineDPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model()),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts()}),
        processing_class=AutoTokenizer.from_pretrained(model(), padding_side="left"),
        peft_config=lora(),
    ).train()


def ppo(folder: Path) -> None:
    """PPO with a reward model and a critic on the same base, both with an untrained head."""
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(model(), padding_side="left")
    rows = Dataset.from_list([{"input_ids": tokenizer(text).input_ids} for text in prompts()])
    torch.manual_seed(0)
    judge, critic = (AutoModelForSequenceClassification.from_pretrained(model(), num_labels=1) for _ in range(2))
    settings = shared(folder)
    settings["total_episodes"] = 4 * settings.pop("max_steps")
    config = PPOConfig(
        **settings,
        num_ppo_epochs=2,
        num_mini_batches=1,
        response_length=MAX_LENGTH,
        kl_coef=BETA,
        num_sample_generations=0,
    )
    PPOTrainer(
        args=config,
        processing_class=tokenizer,
        model=get_peft_model(AutoModelForCausalLM.from_pretrained(model()), lora()),
        ref_model=None,
        reward_model=judge,
        value_model=critic,
        train_dataset=rows,
        eval_dataset=rows,
    ).train()


RUNS: dict[str, Callable[[Path], None]] = {
    "grpo_beta0": lambda folder: grpo(folder, beta=0.0),
    "grpo_beta": grpo,
    "grpo_completions": lambda folder: grpo(folder, log_completions=True),
    "grpo_tensorboard": lambda folder: grpo(folder, report_to=["tensorboard"]),
    "rloo": rloo,
    "dpo": dpo,
    "kto": kto,
    "online_dpo": online_dpo,
    "ppo": ppo,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs, and say which were made."""
    parser = argparse.ArgumentParser(description="Real runs of TRL's trainers, for their logs.")
    parser.add_argument("out", type=Path, help="folder of the runs")
    parser.add_argument("names", nargs="*", help="which; all of them if none is named")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in RUNS]
    if unknown:
        parser.error(f"no run is called {', '.join(unknown)}; there are {', '.join(RUNS)}")
    torch.set_num_threads(1)
    outcomes = {}
    for name in options.names or RUNS:
        try:
            RUNS[name](options.out / name)
            outcomes[name] = "ran"
        except ImportError as error:
            outcomes[name] = f"not in this TRL: {error}"
    print(f"TRL {trl.__version__}", *(f"{name:18}{outcome}" for name, outcome in outcomes.items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
