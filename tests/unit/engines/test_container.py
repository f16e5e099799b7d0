"""The container adapter's command: what podman is told, and what it never is."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import ConfigError
from engines.adapter import KEY_FILE, RUN_AS, Build, EngineSpec, NodeFacts
from engines.adapters.container import container_name
from engines.registry import get_adapter

ADAPTER = get_adapter("container")
BUILD = Build("container", "podman", "system", Path("/usr/bin/podman"))
FACTS = NodeFacts(cpu_count=2, memory_total_mib=4096)
DIGEST = "sha256:" + "0123456789abcdef" * 4
SPEC = EngineSpec(
    "vision", "container", ("m",), 8201, weights=Path("/srv/weights/m"), home=Path("/var/lib/llmgw/homes/vision"),
    command=("serve", "{weights}", "--port={port}", "--host", "{host}", "--key", "{keyFile}"),
    env=(("OMP_NUM_THREADS", "2"),), options={"image": f"docker.io/team/engine@{DIGEST}"},
)  # fmt: skip


def argv(spec: EngineSpec = SPEC) -> tuple[str, ...]:
    return ADAPTER.build_command(spec, BUILD, FACTS).argv


def test_the_image_comes_after_all_of_podmans_own_words_and_before_the_engines() -> None:
    words = argv()
    at = words.index(SPEC.options["image"])

    assert words[0] == "/usr/bin/podman"
    assert words.index("run") < at
    assert words[at + 1 :] == (
        *("serve", "/srv/weights/m", "--port=8201", "--host", "127.0.0.1", "--key", "/run/llmgw/key"),
    )


@pytest.mark.parametrize(
    "word", ["--rm", "--replace", "--pull=never", "--cgroups=disabled", "--read-only", "--cap-drop=all",
             "--security-opt=no-new-privileges"],
)  # fmt: skip
def test_it_is_closed_and_part_of_its_unit(word: str) -> None:
    words = argv()

    assert word in words[: words.index(SPEC.options["image"])]
    assert words[words.index("--user") + 1] == RUN_AS
    assert ADAPTER.build_command(SPEC, BUILD, FACTS).is_container


def test_only_the_home_may_be_written() -> None:
    words = argv()
    mounts = [words[at + 1] for at, word in enumerate(words) if word == "--mount"]

    assert mounts == [
        "type=bind,src=/var/lib/llmgw/homes/vision,dst=/var/lib/llmgw/homes/vision",
        "type=bind,src=/srv/weights/m,dst=/srv/weights/m,ro=true",
        f"type=bind,src={KEY_FILE},dst=/run/llmgw/key,ro=true",
    ]


def test_a_command_that_asks_for_no_key_gets_none() -> None:
    assert not any(KEY_FILE in word for word in argv(replace(SPEC, command=("serve",))))


def test_values_of_the_environment_are_in_no_command_line() -> None:
    words = argv(replace(SPEC, env=(("VLLM_X", "value-of-it"),)))

    assert words[words.index("--env") + 1] == "VLLM_X"
    assert not any("value-of-it" in word for word in words)


def test_cards_are_asked_for_by_their_uuids() -> None:
    words = argv(replace(SPEC, devices=("GPU-1", "MIG-2"), options={**SPEC.options, "shmMib": 512}))

    assert [words[at + 1] for at, word in enumerate(words) if word == "--device"] == [
        "nvidia.com/gpu=GPU-1",
        "nvidia.com/gpu=MIG-2",
    ]
    assert words[words.index("--shm-size") + 1] == "512m"


@pytest.mark.parametrize(
    "image",
    [
        "", "x", "x:latest", f"x:1@{DIGEST}", f"X@{DIGEST}", f"--privileged@{DIGEST}", f"docker-archive:/x@{DIGEST}",
        f"oci:/x@{DIGEST}", f"../x@{DIGEST}", f"x@{DIGEST}0", f"x@{DIGEST[:-1]}", f"x@{DIGEST.upper()}",
        f"x y@{DIGEST}",
        f"x\n@{DIGEST}", f"x@{DIGEST}\n", f"@{DIGEST}", f"a//b@{DIGEST}", f"a/@{DIGEST}", f"https://a/b@{DIGEST}",
    ],
)  # fmt: skip
def test_an_image_without_a_digest_or_of_another_kind_is_refused(image: str) -> None:
    spec = replace(SPEC, options={"image": image})

    assert "options.image" in " ".join(ADAPTER.check_spec(spec))
    with pytest.raises(ConfigError):
        argv(spec)


@pytest.mark.parametrize(
    "image", [f"x@{DIGEST}", f"localhost/a/b_c@{DIGEST}", f"10.0.0.1:5000/a.b/c-d@{DIGEST}", f"a__b@{DIGEST}"]
)
def test_every_usual_name_is_taken(image: str) -> None:
    assert ADAPTER.check_spec(replace(SPEC, options={"image": image})) == []


@pytest.mark.parametrize("path", ["/srv/a,b", '/srv/a"b', "relative", "/srv/a\nb"])
def test_a_path_that_would_be_read_as_two_words_is_refused(path: str) -> None:
    assert ADAPTER.check_spec(replace(SPEC, weights=Path(path)))


def test_a_container_is_named_so_that_podman_takes_it_and_no_two_share_a_name() -> None:
    ids = ["a/b", "a:b", "a@b", "a-b", "a" * 128, "a" * 127 + "b"]
    names = {container_name(one) for one in ids}

    assert len(names) == len(ids)
    assert all(len(name) < 128 and not set(name) & set("/:@") for name in names)
