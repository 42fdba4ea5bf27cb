"""One rank of a TRL training with an alarm from step 1 on, under `torchrun`: `trl_process.py MODEL FOLDER RUNG ...`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import trl
from alarm_rules import Alarm
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from kleash.integrations import KleashCallback
from kleash.monitor import monitor


def _main() -> None:
    model, folder, *ladder = sys.argv[1:]
    monitor.make_rules = lambda: [Alarm(lambda step: step >= 1)]  # type: ignore[assignment]
    trainer = trl.RLOOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs=lambda completions, **columns: [float(len(text)) for text in completions],
        args=trl.RLOOConfig(
            output_dir=folder,
            max_steps=4,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=4,
            beta=0.05,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list([{"prompt": f"prompt number {i} says"} for i in range(16)]),
        peft_config=LoraConfig(r=4, task_type="CAUSAL_LM"),
    )
    measured = KleashCallback(["held out"], every=2, max_length=4, ladder=ladder, patience=2, tighten_by=0.5)
    measured.attach(trainer)
    trainer.train()
    ended = {"beta": trainer.beta, "step": trainer.state.global_step}
    (Path(folder) / f"rank_{os.environ['RANK']}.json").write_text(json.dumps(ended), encoding="utf-8")


if __name__ == "__main__":
    _main()
