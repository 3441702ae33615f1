"""Options that an API or a server cannot have."""

import pytest

from servetwin.loadtest.body.body_options import PLAIN, BodyOptions, check_options
from servetwin.loadtest.body.images import Images
from servetwin.loadtest.body.lora_mix import LoraMix
from servetwin.loadtest.dialects.dialect import Api
from servetwin.workloads.errors import LoadTestError

LORA = BodyOptions(lora=LoraMix({"sql": 0.5}))


@pytest.mark.parametrize(
    ("options", "api", "said"),
    [
        (BodyOptions(images=Images(8, 8)), "completions", "--image and --api completions: images"),
        (BodyOptions(images=Images(8, 8)), "embeddings", "--image and --api embeddings: images"),
        (BodyOptions(whole=True), "native", "--no-stream: the native API is read as a stream"),
        (LORA, "native", "--lora-modules: the native API has none"),
        (BodyOptions(sampling={"seed": 1}), "embeddings", "--sampling and --api embeddings: an"),
        (LORA, "chat", "--lora-modules sql: not served there; it serves base, other"),
    ],
)
def test_what_does_not_fit_is_one_line(options: BodyOptions, api: Api, said: str) -> None:
    with pytest.raises(LoadTestError) as refused:
        check_options(options, api, ["base", "other"])
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("models", [[], ["base", "sql"]])
def test_a_module_may_be_served(models: list[str]) -> None:
    check_options(LORA, "chat", models)
    check_options(PLAIN, "native", models)
