"""An engine in a container, by podman itself, on an installed node: it serves, is closed, and ends with its unit."""

import json
from collections.abc import Iterator

import pytest

from tests.hosts.harness import Host
from tests.hosts.node import PROGRAMS, Node
from tests.hosts.package import installed_layer, wait_active
from tests.hosts.podman import make_image, podman_layer
from tests.rewriting import rewrite

UNIT = "llmgw-engine-boxed.service"
ABSENT = "localhost/none@sha256:" + "0" * 64

# What the process in the container could do, as it sees it itself, and then the simulated engine.
_SCRIPT = "; ".join(
    (
        'exec 3>"$HOME/seen"',
        "id -u >&3; id -g >&3; grep CapEff /proc/self/status >&3",
        "touch /x || echo root is closed >&3",
        'touch "$0" || echo weights are closed >&3',
        'touch "$1" || echo key is closed >&3',
        'touch "$HOME/y" && echo home is open >&3',
        "exec 3>&-; shift",
        'PYTHONPATH=/usr/lib/llmgw:/usr/lib/llmgw/vendor exec python3 -m engines.sim "$@"',
    )
)


def config(image: str) -> str:
    command = [
        *("/bin/sh", "-c", _SCRIPT, "{weights}", "{keyFile}", "--key-file", "{keyFile}"),
        *("--host", "{host}", "--port", "{port}", "--model={model}"),
    ]
    runtime = {
        "engine": "container",
        "weights": "/srv/weights.bin",
        "memoryGb": 1,
        "options": {"image": image},
        "command": command,
    }
    runtimes = {"boxed": {**runtime, "keepWarm": True}, "absent": {**runtime, "options": {"image": ABSENT}}}
    return json.dumps({"models": [{"id": "boxed", "runtime": "boxed"}], "runtimes": runtimes})


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Host("boxes", layers=[podman_layer(), installed_layer()]) as host:
        wait_active(host, "llmgw.target", *PROGRAMS)
        image = make_image(host)
        weights = host.path("/srv/weights.bin")
        weights.write_bytes(b"weights")
        weights.chmod(0o666)  # it is the mount that is to keep it closed
        rewrite(host.path("/etc/llmgw/config.yaml"), config(image))
        made = Node(host)
        made.llmgw("config", "check")
        made.llmgw("reload")
        yield made


def pids_of_unit(host: Host) -> set[int]:
    group = host.run("systemctl", "show", "--value", "--property=ControlGroup", UNIT).stdout.strip()
    listed = host.run("find", f"/sys/fs/cgroup{group}", "-name", "cgroup.procs", "-exec", "cat", "{}", "+").stdout
    return {int(pid) for pid in listed.split()}


def engines_of(host: Host) -> set[int]:
    """The processes of the simulated engine, wherever they are."""
    return {int(pid) for pid in host.run("pgrep", "-f", "python3 -m engines.sim", check=False).stdout.split()}


def test_it_answers_through_the_gateway_which_has_the_key(node: Node) -> None:
    assert node.chat().startswith("w0 w1 ")


def test_its_processes_are_the_units_and_the_key_is_in_no_command_line(node: Node) -> None:
    engines = engines_of(node.host)
    key = node.host.run("cat", "/run/llmgw/keys/boxed.key").stdout.strip()

    assert engines
    assert engines <= pids_of_unit(node.host)
    assert key not in node.host.run("ps", "-A", "-ww", "-o", "args").stdout


def test_it_is_the_engines_account_without_rights_and_may_write_its_home_alone(node: Node) -> None:
    seen = node.host.run("cat", "/var/lib/llmgw/homes/boxed/seen").stdout.splitlines()
    account = [node.host.run("id", flag, "llmgw-engine").stdout.strip() for flag in ("-u", "-g")]

    assert seen[:2] == account
    assert set(seen[2].split(":")[1].strip()) == {"0"}
    assert seen[3:] == ["root is closed", "weights are closed", "key is closed", "home is open"]


def test_podman_killed_takes_all_of_it_along_and_it_comes_back_and_serves(node: Node) -> None:
    before, main = engines_of(node.host), node.main_pid(UNIT)
    assert main > 1

    node.host.run("kill", "-KILL", str(main))

    assert node.chat(within_s=60).startswith("w0 ")
    assert not before & engines_of(node.host)
    assert node.main_pid(UNIT) != main


def test_the_engine_killed_inside_comes_back_too(node: Node) -> None:
    before = engines_of(node.host)
    assert before

    node.host.run("kill", "-KILL", *map(str, before))

    assert node.chat(within_s=60).startswith("w0 ")
    assert not before & engines_of(node.host)


def test_a_stopped_one_leaves_no_process_and_the_next_takes_its_place(node: Node) -> None:
    node.llmgw("runtime-stop", "boxed")

    assert engines_of(node.host) == set()
    assert node.host.run("podman", "ps", "--quiet", "--all").stdout == "", "podman has cleared away its record, too"
    node.llmgw("runtime-start", "boxed")
    assert node.chat().startswith("w0 ")
    assert len(node.host.run("podman", "ps", "--quiet", "--all").stdout.split()) == 1


def test_an_image_that_is_not_there_is_named_in_the_failure(node: Node) -> None:
    done = node.llmgw("runtime-start", "absent", check=False)

    assert done.code != 0
    assert ABSENT in done.stdout + done.stderr + node.llmgw("logs", "absent").stdout


def test_without_podman_the_error_names_the_packages(node: Node) -> None:
    podman = node.host.path("/usr/bin/podman")
    podman.rename(podman.with_name("podman.away"))
    try:
        done = node.llmgw("runtime-start", "absent", check=False)
    finally:
        podman.with_name("podman.away").rename(podman)

    assert "container is not installed" in done.stderr
    assert "apt-get install podman crun" in done.stderr
