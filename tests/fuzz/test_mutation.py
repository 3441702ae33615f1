"""The shared mutations: equal for equal seeds, varied, and always within JSON's types."""

import json

import numpy as np

from tests.fuzz.mutation import mutated_bytes, mutated_json

BODY = {"prompt": [1, 2, 3], "stop": ["a", "b"], "stream_options": {"include_usage": True}}


def test_equal_seeds_give_equal_mutations() -> None:
    def drawn(seed: int) -> list[object]:
        rng = np.random.default_rng(seed)
        return [
            (mutated_bytes(rng, b"data: x\n\n"), repr(mutated_json(rng, BODY))) for _ in range(20)
        ]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_mutations_vary_and_leave_the_original_alone() -> None:
    rng, before = np.random.default_rng(0), json.dumps(BODY)
    values = {repr(mutated_json(rng, BODY)) for _ in range(300)}
    texts = {mutated_bytes(rng, before.encode()) for _ in range(300)}
    assert len(values) > 150
    assert len(texts) > 250
    assert json.dumps(BODY) == before


def test_every_mutated_value_can_be_written_as_json() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        text = json.dumps(mutated_json(rng, BODY))
        assert json.dumps(json.loads(text)) == text


def test_nothing_is_a_start_too() -> None:
    rng = np.random.default_rng(2)
    assert {len(mutated_bytes(rng, b"")) for _ in range(50)} > {0}
    assert any(mutated_json(rng, {}) for _ in range(50))
