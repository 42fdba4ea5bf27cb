"""Files that a gauge reads: adapters on the tiny model, a run with checkpoints, GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from tiny_run import settings
from transformers import AutoModelForCausalLM, AutoTokenizer

from kleash.runs.records import Checkpoint
from kleash.runs.writer import RunWriter


def save_adapter(
    base: Path | str, folder: Path, *, scale: float = 0.0, named: str | None = None, seed: int = 0, **options: Any
) -> Path:
    """A LoRA adapter on `base`; `scale` 0 changes nothing. `named` is the base that its config names."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(task_type="CAUSAL_LM", **{"r": 4, "target_modules": ["q_proj", "down_proj"], **options})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        peft_model = get_peft_model(model, config)
        with torch.no_grad():
            for name, parameter in peft_model.named_parameters():
                if "lora_B" in name:
                    parameter.add_(scale * torch.randn_like(parameter))
    peft_model.save_pretrained(folder)
    file = folder / "adapter_config.json"
    content = json.loads(file.read_text())
    content["base_model_name_or_path"] = str(base) if named is None else named
    file.write_text(json.dumps(content))
    return folder


def save_run(base: Path, folder: Path, *, steps: tuple[int, ...], scale: float = 0.1) -> Path:
    """A run of `base` with an adapter as the checkpoint of each step."""
    config = settings(base, folder.parent, f"name={folder.name}").model_dump(mode="json")
    with RunWriter.create(folder, config, {}) as writer:
        for step in steps:
            path = save_adapter(base, folder / "checkpoints" / f"step_{step}", scale=scale * step, seed=step)
            writer.write_checkpoint(Checkpoint(step, path))
        writer.set_status("finished")
    return folder


def unknown_gguf(file: Path) -> Path:
    """A GGUF file of an architecture that nobody has."""
    writer = gguf.GGUFWriter(file, "wondernet")
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), dtype=np.float32))
    _write(writer)
    return file


def tiny_gguf(base: Path, file: Path) -> Path:
    """The tiny model as llama.cpp's converter writes it, in float32."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config, tokenizer = model.config, AutoTokenizer.from_pretrained(base)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(config.vocab_size)))
    special = set(tokenizer.all_special_ids)
    writer.add_token_types([3 if token in special else 1 for token in range(config.vocab_size)])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.named_parameters():
        if "q_proj" in name:
            tensor = _permuted(tensor, config.num_attention_heads)
        if "k_proj" in name:
            tensor = _permuted(tensor, config.num_key_value_heads)
        writer.add_tensor(names.get_name(name, (".weight",)), tensor.detach().numpy().copy())
    _write(writer)
    return file


def _permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows in the order of llama.cpp's rotary embedding."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
