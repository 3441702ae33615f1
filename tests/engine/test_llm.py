"""The engine without a server: what it answers, and prompts that it cannot take."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servetwin.engine import LLM, SamplingParams
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.parallel.parallel_runner import ParallelRunner
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.child_process import python_environment
from tests.support.checkpoints import edit_json, write_checkpoint
from tests.support.text_tokenizers import byte_level

PROMPTS = ["The quick brown fox", "Zwölf Boxkämpfer", "user assistant"]
POLICIES = PolicyConfig(kv_tokens=1024, max_model_len=128)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("mine"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), device="cpu", policies=POLICIES)


def test_outputs_are_those_of_transformers_and_text_of_the_tokens(llm: LLM, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    tokenizer = byte_level()
    outputs = llm.generate(PROMPTS, SamplingParams(48, ignore_eos=True))
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        ids = model.dummy_inputs["input_ids"].new_tensor([tokenizer.encode(prompt).ids])
        expected = model.generate(
            ids,
            attention_mask=ids.new_ones(ids.shape),
            max_new_tokens=48,
            do_sample=False,
            eos_token_id=None,
        )
        assert output.token_ids == expected[0, ids.shape[1] :].tolist()
        assert output.text == tokenizer.decode(output.token_ids)
        assert output.finish_reason == "length"


def test_prompts_may_be_token_ids_and_each_may_have_its_parameters(llm: LLM) -> None:
    ids = byte_level().encode(PROMPTS[0]).ids
    as_text, as_ids = llm.generate([PROMPTS[0], ids], [SamplingParams(6), SamplingParams(9)])
    assert (len(as_text.token_ids), len(as_ids.token_ids)) == (6, 9)
    assert as_ids.token_ids[:6] == as_text.token_ids


def test_an_output_ends_at_the_ends_of_the_checkpoint(folder: Path, llm: LLM) -> None:
    (whole,) = llm.generate(PROMPTS[:1], SamplingParams(20, ignore_eos=True))
    ends = whole.token_ids[7]
    edit_json(folder / "generation_config.json", eos_token_id=[5, ends])
    try:
        other = LLM(str(folder), device="cpu", policies=POLICIES)
    finally:
        edit_json(folder / "generation_config.json", eos_token_id=1)
    (cut,) = other.generate(PROMPTS[:1], SamplingParams(20))
    first = whole.token_ids.index(ends)
    assert (cut.token_ids, cut.finish_reason) == (whole.token_ids[: first + 1], "stop")
    stop = whole.text[5:8]
    (cut,) = llm.generate(PROMPTS[:1], SamplingParams(20, ignore_eos=True, stop=(stop,)))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"


def test_several_answers_follow_each_other_and_logprobs_are_of_each_token(llm: LLM) -> None:
    params = SamplingParams(5, temperature=1.0, seed=3, n=2, logprobs=1, ignore_eos=True)
    outputs = llm.generate(PROMPTS[:2], params)
    alone = [llm.generate([prompt], params) for prompt in PROMPTS[:2]]
    assert outputs == [*alone[0], *alone[1]]
    assert len({tuple(output.token_ids) for output in outputs}) == 4
    assert [len(output.logprobs or ()) for output in outputs] == [5] * 4
    assert llm.generate(PROMPTS[:1], SamplingParams(2))[0].logprobs is None


LOSSLESS: dict[str, dict[str, Any]] = {
    "no-cache": {"kv_cache": False},
    "per-sequence": {"attention": "per-sequence", "prepack": False},
    "two-ranks": {"tensor_parallel": 2},
}


@pytest.mark.parametrize("computation", LOSSLESS.values(), ids=LOSSLESS)
def test_every_lossless_mode_reads_a_checkpoint(
    llm: LLM, folder: Path, computation: dict[str, Any]
) -> None:
    params = SamplingParams(24, ignore_eos=True)
    other = LLM(str(folder), policies=POLICIES, device="cpu", **computation)
    assert other.generate(PROMPTS, params) == llm.generate(PROMPTS, params)
    if isinstance(other._core.executor, ParallelRunner):
        other._core.executor.close()


def test_a_checkpoint_drafts_for_a_checkpoint(llm: LLM, folder: Path) -> None:
    drafts = Drafts("model", (1, 1, 1), str(folder))
    policies = replace(POLICIES, draft_rows=3)
    other = LLM(str(folder), policies=policies, device="cpu", drafts=drafts)
    params = SamplingParams(24, ignore_eos=True)
    assert other.generate(PROMPTS, params) == llm.generate(PROMPTS, params)
    stats = other._core.stats()
    assert stats.accepted_tokens == stats.drafted_tokens > 0


@pytest.mark.parametrize("weight_format", ["int8", "int4", "w8a8"])
def test_a_checkpoint_is_rounded_to_fewer_bits(llm: LLM, folder: Path, weight_format: str) -> None:
    rounded = LLM(
        str(folder), policies=POLICIES, device="cpu", weight_format=weight_format, weight_group=64
    )
    params = SamplingParams(24, ignore_eos=True)
    assert rounded.generate(PROMPTS, params) != llm.generate(PROMPTS, params)


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ([[5] * 129], SamplingParams(1), "prompt 0: "),
        ([[5] * 120], SamplingParams(9), "prompt 0: "),
        (["a", [5, 512]], SamplingParams(1), "prompt 1: token 512 is not in 0 .. 511"),
        (["a", []], SamplingParams(1), "prompt 1: is empty"),
        (["a"], SamplingParams(1, adapter="x"), "prompt 0: there is no adapter 'x'"),
        (["a"], SamplingParams(1, stop_token_ids=(512,)), "prompt 0: token 512 is not in"),
        (["a"], SamplingParams(1, logit_bias=((-1, 1.0),)), "prompt 0: token -1 is not in"),
        ("a", SamplingParams(1), "prompts: must be a list; put the one prompt in brackets"),
        (["a"], [SamplingParams(1)] * 2, "2 sampling parameters for 1 prompts"),
    ],
)
def test_a_prompt_that_cannot_be_taken_leaves_nothing_behind(
    llm: LLM, prompts: Any, params: Any, message: str
) -> None:
    with pytest.raises(EngineError) as refused:
        llm.generate(prompts, params)
    assert str(refused.value).startswith(message)
    assert [len(one.token_ids) for one in llm.generate(["a", "b"], SamplingParams(3))] == [3, 3]


def test_a_chat_is_put_by_the_template_of_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ tools | length }}"
    )
    (tmp_path / "chat_template.jinja").write_text(template)
    llm, params = LLM(str(tmp_path), device="cpu", policies=POLICIES), SamplingParams(12)
    messages = [{"role": "user", "content": "the dog"}]
    said = llm.chat(messages, params, tools=[{"type": "function"}])
    ids = byte_level().encode("user:the dog;1", add_special_tokens=False).ids
    assert said == llm.generate([ids], params)[0]


def test_presets_and_batches_that_wait_work_too() -> None:
    policies = replace(POLICIES, batching="static", wait_limit_s=0.01, max_seqs=4)
    outputs = LLM("tiny", device="cpu", policies=policies).generate(["ab", "c"], SamplingParams(4))
    assert [len(output.token_ids) for output in outputs] == [4, 4]


def test_the_package_is_imported_without_torch() -> None:
    code = (
        "import sys, servetwin.engine as e; e.SamplingParams(1); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=python_environment())


def test_several_answers_to_a_prompt_stand_together_with_their_logprobs(llm: LLM) -> None:
    params = SamplingParams(
        5, temperature=1.0, seed=3, n=2, ignore_eos=True, logprobs=1, prompt_logprobs=0
    )
    outputs = llm.generate([PROMPTS[0], PROMPTS[1]], [params, replace(params, n=1)])
    assert len(outputs) == 3
    single = llm.generate([PROMPTS[0]], replace(params, n=1, prompt_logprobs=None))[0]
    assert outputs[0].token_ids == single.token_ids != outputs[1].token_ids
    for output in outputs:
        assert output.logprobs is not None
        assert output.prompt_logprobs is not None
        assert len(output.logprobs) == 5
        assert output.prompt_logprobs[0] is None
    assert single.prompt_logprobs is None
    with pytest.raises(EngineError, match=r"^n: a chat has one answer here"):
        llm.chat([{"role": "user", "content": "hi"}], params)
