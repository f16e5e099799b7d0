"""What `config show` may show."""

import pytest

from cli.masking import MASK, is_secret, leaves, mask


@pytest.mark.parametrize(
    ("path", "referenced", "secret"),
    [
        ("security.apiKeys[0]", False, True),
        ("security.adminApiKeys[3]", False, True),
        ("security.allowMissingAuth", False, False),
        ("cluster.nodes.spark-1.apiKey", False, True),
        ("cluster.nodes.spark-1.apiKeyEnv", False, False),
        ("runtimes.q.env.HF_TOKEN", False, True),
        ("runtimes.q.env.my_api_key", False, True),
        ("runtimes.q.env.DB_PASSWORD", False, True),
        ("runtimes.a.b.env.OMP_NUM_THREADS", False, False),
        ("runtimes.q.env.OMP_NUM_THREADS", True, True),
        ("runtimes.q.args[1]", True, True),
        ("runtimes.q.args[1]", False, False),
        ("runtimes.q.command[0]", True, True),
        ("runtimes.q.weights", True, False),
        ("runtimes.env.weights", False, False),
        ("server.host", True, False),
    ],
)
def test_a_value_is_secret_by_place_by_name_or_because_it_was_kept_out_of_the_file(
    path: str, referenced: bool, secret: bool
) -> None:
    assert is_secret(path, {path} if referenced else set()) is secret


def test_masking_keeps_the_shape_and_hides_only_what_is_there() -> None:
    document = {
        "security": {"apiKeys": ["k1", "k2"], "adminApiKeys": []},
        "runtimes": {"q": {"env": {"A_TOKEN": "t", "B_TOKEN": ""}, "args": ["--x", "v"]}},
    }

    masked = mask(document, {"runtimes.q.args[1]"})

    assert masked == {
        "security": {"apiKeys": [MASK, MASK], "adminApiKeys": []},
        "runtimes": {"q": {"env": {"A_TOKEN": MASK, "B_TOKEN": ""}, "args": ["--x", MASK]}},
    }


def test_leaves_are_every_value_with_its_path_and_empty_sections_count() -> None:
    assert leaves({"a": {"b": 1, "c": [2, {"d": 3}]}, "e": {}, "f": []}) == [
        ("a.b", 1),
        ("a.c[0]", 2),
        ("a.c[1].d", 3),
        ("e", {}),
        ("f", []),
    ]
