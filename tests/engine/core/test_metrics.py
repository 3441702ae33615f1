"""The metrics that the server exposes."""

from prometheus_client.parser import text_string_to_metric_families

from servetwin.engine.core.messages import CoreStats
from servetwin.engine.core.metrics import Metrics
from tests.support.live_server import COMPLETIONS, LiveServer, wait_until


def test_metrics_count_what_was_done(fresh_server: LiveServer) -> None:
    prompt = list(range(400, 411))
    for max_tokens in (1, 3):
        fresh_server.client.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": max_tokens})
    fresh_server.client.post(COMPLETIONS, json={"prompt": [997]})
    wait_until(lambda: fresh_server.metrics()["vllm:num_requests_running"] == 0)
    metrics = fresh_server.metrics()
    expected = {
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:prompt_tokens_total": 11 + 11 + 1,
        "vllm:generation_tokens_total": 1 + 3 + 2,
        "vllm:request_success_total/length": 2,
        "vllm:request_success_total/stop": 1,
        "vllm:request_success_total/abort": 0,
        "vllm:num_preemptions_total": 0,
        "vllm:prefix_cache_queries_total": 11 + 11 + 1,
        "vllm:prefix_cache_hits_total": 8,
        "vllm:time_to_first_token_seconds_count": 3,
        "vllm:inter_token_latency_seconds_count": 0 + 2 + 1,
        "vllm:e2e_request_latency_seconds_count": 3,
        "vllm:iteration_tokens_total_count": 1 + 3 + 2,
        "vllm:iteration_tokens_total_sum": 11 + (3 + 1 + 1) + (1 + 1),
    }
    assert {name: metrics[name] for name in expected} == expected


def test_every_metric_carries_the_model_name(server: LiveServer) -> None:
    text = server.client.get("/metrics").text
    families = list(text_string_to_metric_families(text))
    assert all(family.name.startswith("vllm:") for family in families)
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["model_name"] for sample in samples} == {"fake"}


def test_drafted_and_accepted_tokens_are_counted_over_restarts_of_the_core() -> None:
    metrics = Metrics("fake")
    metrics.core(CoreStats(draft_passes=2, drafted_tokens=8, accepted_tokens=5))
    metrics.core(CoreStats(draft_passes=3, drafted_tokens=12, accepted_tokens=5))
    metrics.core_started()
    metrics.core(CoreStats(draft_passes=1, drafted_tokens=4, accepted_tokens=4))
    families = text_string_to_metric_families(metrics.exposition().decode())
    values = {sample.name: sample.value for family in families for sample in family.samples}
    counted = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    assert [values[f"vllm:spec_decode_{name}_total"] for name in counted] == [4, 16, 9]
