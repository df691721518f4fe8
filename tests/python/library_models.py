"""Tiny models of Hugging Face transformers, from configurations with random weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

VOCABULARY = 96
WIDTH = 32
_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=WIDTH, n_layer=2, n_head=4,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def _llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**_DECODER, num_key_value_heads=2, max_position_embeddings=64)
    )


def _mixtral() -> nn.Module:
    config = transformers.MixtralConfig(
        **_DECODER, num_key_value_heads=2, max_position_embeddings=64,
        num_local_experts=4, num_experts_per_tok=2, output_router_logits=True,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config)


def _bert() -> nn.Module:
    config = {**_DECODER, "max_position_embeddings": 64, "num_labels": 3,
              "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
    return transformers.BertForSequenceClassification(transformers.BertConfig(**config))


def _vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        image_size=16, patch_size=4, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def _t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=0, eos_token_id=2, pad_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=20, max_target_positions=64,
        decoder_start_token_id=3, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        begin_suppress_tokens=None, suppress_tokens=None, dropout=0.0,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def _tokens(*sizes: int) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, sizes)


def _causal_batch() -> dict[str, torch.Tensor]:
    ids = _tokens(2, 12)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def _bert_batch() -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    return {"input_ids": _tokens(2, 12), "attention_mask": mask, "labels": torch.tensor([0, 2])}


def _vit_batch() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 2])}


def _t5_batch() -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    return {"input_ids": _tokens(2, 12), "attention_mask": mask, "labels": _tokens(2, 7)}


def _whisper_batch() -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(2, 8, 40), "labels": _tokens(2, 7)}


class Kind(NamedTuple):
    """How a model is made, what it is trained on and, if it generates, from what."""

    make: Callable[[], nn.Module]
    batch: Callable[[], dict[str, torch.Tensor]]
    prompt: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "gpt2": Kind(_gpt2, _causal_batch, ("input_ids", "attention_mask")),
    "llama": Kind(_llama, _causal_batch, ("input_ids", "attention_mask")),
    "bert": Kind(_bert, _bert_batch),
    "vit": Kind(_vit, _vit_batch),
    "t5": Kind(_t5, _t5_batch, ("input_ids", "attention_mask")),
    "whisper": Kind(_whisper, _whisper_batch, ("input_features",)),
    "mixtral": Kind(_mixtral, _causal_batch, ("input_ids", "attention_mask")),
}
GENERATING = [name for name, kind in KINDS.items() if kind.prompt]


def make(name: str, seed: int = 0) -> nn.Module:
    """The model on the CPU, in training mode, without dropout: the same weights for a seed."""
    torch.manual_seed(seed)
    return KINDS[name].make().train()


def make_for_generation(name: str) -> nn.Module:
    """The model on the CPU, ready for generate()."""
    model = make(name).eval()
    # transformers counts the router's losses over the prompt alone, with a mask of all tokens.
    model.config.output_router_logits = False
    return model


def batch(name: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """What the model is trained on, on the CPU."""
    torch.manual_seed(100 + seed)
    return KINDS[name].batch()


def prompt(name: str) -> dict[str, torch.Tensor]:
    """What generate() starts from, on the CPU."""
    return {key: value for key, value in batch(name).items() if key in KINDS[name].prompt}


def to_device(values: dict[str, Any], device: str) -> dict[str, Any]:
    return {key: value.to(device) for key, value in values.items()}
