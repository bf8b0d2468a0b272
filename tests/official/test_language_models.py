"""Language models generate text on both runtimes: methods that share a cache and weights in a data file."""

from __future__ import annotations

import importlib
import runpy
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from exirkit import ExecutorchBackendConfig, ExecutorchProgramManager, MemoryPlanningPass, UsageError, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.fuzz.official import SessionStep
from exirkit.runtime_ref import Runtime

WORDS, PLACES, WIDTH, HEADS = 40, 24, 16, 2
FACTS = {"get_max_seq_len": PLACES, "get_vocab_size": WORDS, "get_bos_id": 1, "get_eos_ids": [2, 3]}
PROMPTS = [[1, 5, 9], [4, 4, 4, 4, 4, 4, 4, 8], [2, 30], [1, 5, 9], list(range(PLACES - 9, 1, -1))]


class Small(torch.nn.Module):
    """Two layers of attention whose keys and values stay in a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.positions = torch.nn.Embedding(PLACES, WIDTH)
        self.mixers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.last = torch.nn.Linear(WIDTH, WORDS)
        for layer in range(2):
            for name in ("keys", "values"):
                self.register_buffer(f"{name}_{layer}", torch.zeros(1, HEADS, PLACES, WIDTH // HEADS))

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions(places)
        visible = torch.arange(PLACES) <= places[:, None]
        for layer, mixer in enumerate(self.mixers):
            query, *new = mixer(x).view(1, -1, 3 * HEADS, WIDTH // HEADS).transpose(1, 2).chunk(3, 1)
            keys, values = (getattr(self, f"{name}_{layer}") for name in ("keys", "values"))
            for cache, rows in zip((keys, values), new, strict=True):
                cache.index_copy_(2, places, rows)
            seen = torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=visible)
            x = x + seen.transpose(1, 2).reshape(x.shape)
        logits: Tensor = self.last(x)
        return logits


def lowered(model: torch.nn.Module, **choices: Any) -> ExecutorchProgramManager:
    """Lower a model as two methods that share their cache, with weights in a data file."""
    one, count = torch.zeros(1, 1, dtype=torch.int64), torch.export.Dim("count", max=PLACES)
    with torch.no_grad():
        prompt = torch.export.export(
            model, (one.repeat(1, 5), torch.arange(5)), dynamic_shapes=({1: count}, {0: count})
        )
        token = torch.export.export(model, (one, torch.arange(1)))
    return shared(to_edge({"forward": prompt, "kv_forward": token}, constant_methods=FACTS), **choices)


def shared(edge: Any, **choices: Any) -> ExecutorchProgramManager:
    planner = MemoryPlanningPass(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning_pass=planner, external_constants=True, **choices)
    made: ExecutorchProgramManager = edge.to_executorch(config)
    return made


def greedy(logits: Callable[[list[int]], Tensor], prompt: Sequence[int], count: int) -> list[int]:
    """Return what a model without a cache says after a prompt."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(logits(text).argmax()))
    return text[len(prompt) :]


def steps_of(prompt: Sequence[int], tokens: Sequence[int]) -> list[SessionStep]:
    """Return the calls that generate `tokens`: the prompt at once, then each token, but for the last."""
    steps = [SessionStep("forward", [torch.tensor([prompt]), torch.arange(len(prompt))])]
    for at, token in enumerate(tokens[:-1]):
        steps.append(SessionStep("kv_forward", [torch.tensor([[token]]), torch.tensor([len(prompt) + at])]))
    return steps


def assert_generates(
    made: ExecutorchProgramManager, texts: Mapping[int, list[int]], prompts: Sequence[list[int]], official: Any
) -> None:
    """Each runtime, given what eager said so far, says the next token: so it says all of them by itself."""
    data = made.tensor_data["_default_external_constant"]
    program = Runtime.get().load_program(made.buffer, data_path=data, share_arenas=True, sanitize=True, in_place=True)
    methods = {name: program.load_method(name) for name in ("forward", "kv_forward")}
    steps = [step for at, prompt in enumerate(prompts) for step in steps_of(prompt, texts[at])]
    wanted = [token for at in range(len(prompts)) for token in texts[at]]
    mine = [methods[step.method].execute(list(step.inputs or ()))[0] for step in steps]
    theirs = [one for (one,) in official.session(made.buffer, steps, data=data).unwrap()]
    for found in (mine, theirs):
        assert [int(logits[0, -1].argmax()) for logits in found] == wanted
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def small() -> Small:
    torch.manual_seed(3)
    model = Small().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return model


@pytest.fixture(scope="module")
def file(small: Small) -> ExecutorchProgramManager:
    return lowered(small, run_reinplace_pass=True)


def told(model: Small, prompt: Sequence[int], count: int) -> list[int]:
    with torch.no_grad():
        return greedy(lambda text: model(torch.tensor([text]), torch.arange(len(text)))[0, -1], prompt, count)


@pytest.mark.executorch
@pytest.mark.parametrize("level", [0, 1, 2])
def test_prompts_and_tokens_in_turn(
    small: Small, level: int, file: ExecutorchProgramManager, official_runtime: OfficialRuntime
) -> None:
    made = file if level == 1 else lowered(small, run_reinplace_pass=True, optimization_level=level)
    (data,) = made.tensor_data.values()
    weights = sum(one.nbytes for one in small.parameters())
    assert weights < len(data) < weights + 2048, "the weights are stored once"
    for name in ("forward", "kv_forward"):
        targets = [str(node.target) for node in made.exported_program(name).graph.nodes]
        assert targets.count("aten.index_put_.default") == 4, "only new rows of the cache are written"
    texts = {at: told(small, prompt, 6) for at, prompt in enumerate(PROMPTS)}
    assert len({token for text in texts.values() for token in text}) > 5, "tokens depend on those before"
    assert_generates(made, texts, PROMPTS, official_runtime)


@pytest.mark.executorch
def test_runs_go_on_from_any_state(
    small: Small, file: ExecutorchProgramManager, official_runtime: OfficialRuntime
) -> None:
    """A prompt twice, a second part of a prompt, a step back, and all of a prompt token by token."""
    (data,) = file.tensor_data.values()
    text = [7, 1, 8, 2, 9, 3, 30, 4]

    def call(start: int, end: int) -> SessionStep:
        name = "kv_forward" if end - start == 1 else "forward"
        return SessionStep(name, [torch.tensor([text[start:end]]), torch.arange(start, end)])

    ranges = [(0, 4), (0, 4), (4, 7), (7, 8), (4, 5), (5, 8), (0, 1), (1, 2), (2, 3), (3, 8)]
    steps = [call(*one) for one in ranges]
    program = Runtime.get().load_program(file.buffer, data_path=data, share_arenas=True)
    methods = {name: program.load_method(name) for name in ("forward", "kv_forward")}
    mine = [methods[step.method].execute(list(step.inputs or ()))[0] for step in steps]
    theirs = [one for (one,) in official_runtime.session(file.buffer, steps, data=data).unwrap()]
    with torch.no_grad():
        expected = Small.forward(small, torch.tensor([text]), torch.arange(len(text)))
    for (start, end), one, other in zip(ranges, mine, theirs, strict=True):
        torch.testing.assert_close(one, expected[:, start:end], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)


def test_a_buffer_reached_by_a_list_is_rejected_with_what_to_do() -> None:
    cache = [torch.zeros(2)]

    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", cache[0])

        def forward(self, x: Tensor) -> Tensor:
            return cache[0].copy_(x) + 1

    x = (torch.ones(2),)
    with pytest.raises(UsageError, match=r"EK116.* is a constant") as caught:
        to_edge(torch.export.export(Cached(), x))
    assert "strict=True" in str(caught.value.diagnostics[0].hint)
    strict = to_edge(torch.export.export(Cached(), x, strict=True)).to_executorch()
    assert Runtime.get().load_program(strict.buffer).load_method("forward").execute([x[0]])[0].tolist() == [2.0, 2.0]


def test_facts_are_methods(file: ExecutorchProgramManager) -> None:
    program = Runtime.get().load_program(file.buffer)
    assert {name: program.load_method(name).execute([]) for name in FACTS} == {
        name: fact if isinstance(fact, list) else [fact] for name, fact in FACTS.items()
    }


def quantize(model: torch.nn.Module) -> None:
    """Quantize a model as torchao does: tables and weights of attention alone, the rest with what they are given."""
    library = importlib.import_module("torchao.quantization")
    four = vars(torch)["int4"]
    given = library.Int8DynamicActivationIntxWeightConfig(weight_dtype=four, weight_granularity=library.PerGroup(16))
    kinds: list[tuple[str, type[torch.nn.Module], Any]] = [
        (
            "embed",
            torch.nn.Embedding,
            library.IntxWeightOnlyConfig(weight_dtype=four, granularity=library.PerGroup(32)),
        ),
        ("self_attn", torch.nn.Linear, library.Int8WeightOnlyConfig()),
        ("mlp", torch.nn.Linear, given),
    ]
    for part, kind, config in kinds:
        library.quantize_(model, config, lambda layer, name, k=kind, p=part: isinstance(layer, k) and p in name)


@pytest.mark.executorch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_llama_of_the_transformers_library(is_quantized: bool, official_runtime: OfficialRuntime) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "09_generate_text.py"))
    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=example["WORDS"], num_hidden_layers=1, **sizes))
    weights = sum(one.nbytes for one in model.parameters())
    if is_quantized:
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.3)
        quantize(model)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        edge = example["edge_program"](model)

        def logits(text: list[int]) -> Tensor:
            found: Tensor = model(torch.tensor([text])).logits[0, -1]
            return found

        prompts = [[1, 5, 9], [4, 4, 4, 4, 4, 4, 4, 8], [2, 90], list(range(60, 40, -1))]
        texts = {at: greedy(logits, prompt, 10) for at, prompt in enumerate(prompts)}
    assert len({token for text in texts.values() for token in text}) > 5, "tokens depend on those before"
    made = shared(edge, run_reinplace_pass=True)
    stored = sum(map(len, made.tensor_data.values()))
    if is_quantized:
        assert stored < 0.6 * weights, "the head alone is float"
    else:
        assert weights < stored < weights + 4096, "the weights are stored once"
    assert_generates(made, texts, prompts, official_runtime)
