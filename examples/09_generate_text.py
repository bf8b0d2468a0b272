"""A language model in one file: a prompt at once, then token by token; both methods share cache and weights."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

from exirkit import EdgeProgramManager, ExecutorchBackendConfig, MemoryPlanningPass, to_edge
from exirkit.runtime_ref import Runtime

LENGTH, WORDS, EOS = 32, 96, [2, 3]  # tokens that the cache holds, tokens that there are, those that end a text
FACTS = {"get_max_seq_len": LENGTH, "get_vocab_size": WORDS, "get_eos_ids": EOS, "enable_dynamic_shape": True}


class Decoder(torch.nn.Module):
    """Writes tokens `[1, n]` to places `input_pos` (`[n]`) of the cache; returns logits `[1, n, words]`."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        vars(model.generation_config).update(use_cache=True, cache_implementation="static")
        self.cached = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=LENGTH)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> object:
        return self.cached(input_ids=tokens, cache_position=input_pos)


def edge_program(model: LlamaForCausalLM) -> EdgeProgramManager:
    decoder, one, count = Decoder(model), torch.zeros(1, 1, dtype=torch.int64), torch.export.Dim("count", max=LENGTH)
    five, sizes = (one.repeat(1, 5), torch.arange(5)), ({1: count}, {0: count})
    prefill = torch.export.export(decoder, five, dynamic_shapes=sizes, strict=True)
    decode = torch.export.export(decoder, (one, torch.arange(1)), strict=True)
    return to_edge({"forward": prefill, "kv_forward": decode}, constant_methods=FACTS)


def main() -> None:
    sizes = LlamaConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    planner = MemoryPlanningPass(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning_pass=planner, external_constants=True, run_reinplace_pass=True)
    made = edge_program(LlamaForCausalLM(sizes)).to_executorch(config)
    program = Runtime.get().load_program(made.buffer, data_path=list(made.tensor_data.values()), share_arenas=True)
    prefill, decode, text = program.load_method("forward"), program.load_method("kv_forward"), [1, 5, 9]
    (logits,) = prefill.execute([torch.tensor([text]), torch.arange(3)])
    while len(text) < 15 and (token := int(logits[0, -1].argmax())) not in EOS:
        text.append(token)
        (logits,) = decode.execute([torch.tensor([[token]]), torch.tensor([len(text) - 1])])
    print(text, f"{len(made.buffer):,} bytes and {sum(map(len, made.tensor_data.values())):,} of weights")


if __name__ == "__main__":
    main()
