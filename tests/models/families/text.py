"""Language and speech models of the transformers library, with their real layers, narrow and shallow."""

from __future__ import annotations

from typing import Any

import torch
from tests.models.case import DEEP, Built, Call, Family, enliven, single
from torch import nn

family = Family("text")

VOCABULARY = 96

EAGER: dict[str, Any] = {"attn_implementation": "eager"}


class Masked(nn.Module):
    """Runs a model on tokens and their attention mask and takes one field of its answer."""

    def __init__(self, model: nn.Module, name: str, **options: Any) -> None:
        super().__init__()
        self.model = enliven(model)
        self.name = name
        self.options = options

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        answer = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **self.options)
        field: torch.Tensor = answer[self.name]
        return field


class Unmasked(nn.Module):
    """Runs a model on tokens alone and takes one field of its answer."""

    def __init__(self, model: nn.Module, name: str, **options: Any) -> None:
        super().__init__()
        self.model = enliven(model)
        self.name = name
        self.options = options

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        field: torch.Tensor = self.model(input_ids=input_ids, return_dict=True, **self.options)[self.name]
        return field


def tokens(batch: int, length: int) -> torch.Tensor:
    """Return random token ids, int64."""
    return torch.randint(0, VOCABULARY, (batch, length))


def masked_calls(batch: int = 2, length: int = 9) -> list[Call]:
    """Return two calls by name; in the second one the last three positions of the last row are padding."""
    full, padded = torch.ones(batch, length, dtype=torch.int64), torch.ones(batch, length, dtype=torch.int64)
    padded[-1, -3:] = 0
    return [Call(input_ids=tokens(batch, length), attention_mask=mask) for mask in (full, padded)]


def bert_sizes(**more: Any) -> dict[str, Any]:
    """Return the sizes of a small encoder."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
    }
    return sizes | more


@family.case(DEEP, "attention")
def bert() -> Built:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(**bert_sizes(num_labels=3, attn_implementation="eager"))
    return single(Masked(BertForSequenceClassification(config), "logits"), *masked_calls())


@family.case(DEEP, "attention")
def bert_sdpa() -> Built:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(**bert_sizes(attn_implementation="sdpa"))
    return single(Masked(BertForMaskedLM(config), "logits"), *masked_calls())


@family.case(DEEP, "attention")
def distilbert() -> Built:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=32,
        **EAGER,
    )
    return single(Masked(DistilBertModel(config), "last_hidden_state"), *masked_calls())


@family.case(DEEP, "attention")
def albert() -> Built:
    from transformers import AlbertConfig, AlbertModel

    config = AlbertConfig(**bert_sizes(embedding_size=16, attn_implementation="eager"))
    return single(Masked(AlbertModel(config), "pooler_output"), *masked_calls())


@family.case(DEEP, "attention", "decoder")
def gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
        **EAGER,
    )
    return single(Masked(GPT2LMHeadModel(config), "logits", use_cache=False), *masked_calls())


def llama_sizes(**more: Any) -> dict[str, Any]:
    """Return the sizes of a small decoder with grouped key and value heads."""
    return bert_sizes(num_key_value_heads=2, max_position_embeddings=32, **more)


@family.case(DEEP, "attention", "decoder")
def llama() -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**llama_sizes(attn_implementation="eager"))
    return single(Masked(LlamaForCausalLM(config), "logits", use_cache=False), *masked_calls())


@family.case(DEEP, "attention", "decoder")
def llama_sdpa() -> Built:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(**llama_sizes(attn_implementation="sdpa"))
    model = Unmasked(LlamaModel(config), "last_hidden_state", use_cache=False)
    return single(model, Call(tokens(1, 7)), Call(tokens(1, 7)))


@family.case(DEEP, "attention", "decoder")
def qwen2() -> Built:
    from transformers import Qwen2Config, Qwen2Model

    config = Qwen2Config(**llama_sizes(attn_implementation="eager"))
    model = Unmasked(Qwen2Model(config), "last_hidden_state", use_cache=False)
    return single(model, Call(tokens(2, 6)))


@family.case(DEEP, "attention", "decoder")
def gemma() -> Built:
    from transformers import GemmaConfig, GemmaModel

    config = GemmaConfig(**llama_sizes(head_dim=8, attn_implementation="eager"))
    model = Unmasked(GemmaModel(config), "last_hidden_state", use_cache=False)
    return single(model, Call(tokens(2, 6)))


@family.case(DEEP, "attention")
def t5_encoder() -> Built:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"
    )
    return single(Masked(T5EncoderModel(config), "last_hidden_state"), *masked_calls())


@family.case(DEEP, "attention")
def bart_encoder() -> Built:
    from transformers import BartConfig, BartModel

    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
        **EAGER,
    )
    return single(Masked(BartModel(config).get_encoder(), "last_hidden_state"), *masked_calls())


class Sequence2Sequence(nn.Module):
    """Encoder and decoder in one call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = enliven(model)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        answer = self.model(input_ids=source, decoder_input_ids=target, use_cache=False, return_dict=True)
        field: torch.Tensor = answer["logits"]
        return field


@family.case(DEEP, "attention", "decoder")
def t5_translation() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
    return single(Sequence2Sequence(T5ForConditionalGeneration(config)), Call(tokens(2, 8), tokens(2, 5)))


class Spectrum(nn.Module):
    """Takes the last hidden state of a speech encoder."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = enliven(model)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        field: torch.Tensor = self.model(features, return_dict=True)["last_hidden_state"]
        return field


@family.case(DEEP, "attention", "speech")
def whisper_encoder() -> Built:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=24,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=[],
        begin_suppress_tokens=[],
        **EAGER,
    )
    return single(Spectrum(WhisperModel(config).get_encoder()), *(Call(torch.randn(1, 16, 48)) for _ in range(2)))
