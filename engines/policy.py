"""What an operator, or a cluster, may add to an engine's command line and environment. Pure.

`args` and `env` come from a config or over the wire and run on this node, so both are judged when they are read and
again just before a unit is written. Arguments: refused is what llmgw sets itself, and what reads, writes, loads or
connects elsewhere, in every spelling that the engine takes. A flag that the engine's table does not know is refused
when a word of its name says that it might (`SUSPICIOUS`). Environment: an allow-list of tuning families, minus names
that carry a path, a library, an address, a credential or an injection.

Every word that begins with a dash is judged as a flag, even where it may be another flag's value: refusing a strange
value is better than passing a flag that we took for one.
"""

import re
from collections.abc import Mapping, Sequence

from core.errors import RefusedError
from engines.policies.comfyui import COMFYUI
from engines.policies.llamacpp import LLAMACPP
from engines.policies.reasons import ANOTHER_SERVER
from engines.policies.sglang import SGLANG
from engines.policies.sim import SIM
from engines.policies.table import SUSPICIOUS, FlagTable
from engines.policies.trtllm import TRTLLM
from engines.policies.vllm import VLLM
from engines.spec import is_clean

_TABLES = {"llamacpp": LLAMACPP, "vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM, "comfyui": COMFYUI, "sim": SIM}

_OWN_COMMAND = ("command", "container")
_NUMBER = re.compile(r"-(\d|\.\d|inf$)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WORD_MAX_BYTES = 32 << 10
_FAMILIES = (
    "NCCL_", "VLLM_", "CUDA_", "OMP_", "KMP_", "GOMP_", "LLAMA_", "GGML_", "SGLANG_", "SGL_", "TORCH_", "PYTORCH_",
    "OPENBLAS_", "MKL_", "NVIDIA_TF32_", "TOKENIZERS_", "TRTLLM_", "RAYON_", "MALLOC_",
)  # fmt: skip
_BAD_WORDS = frozenset(
    """PATH PATHS FILE FILES FILENAME DIR DIRS DIRECTORY FOLDER ROOT HOME LIB LIBS LIBRARY LIBRARIES SO PLUGIN PLUGINS
    INJECTION INJECTION32 INJECTION64 PRELOAD AUTOLOAD AUDIT HOST HOSTS HOSTNAME ADDR ADDRESS IP PORT PORTS URL URI
    ENDPOINT SERVER PROXY KEY KEYS TOKEN SECRET PASSWORD CREDENTIAL CREDENTIALS CONF CONFIG HOOK HOOKS TOOL EXTENSIONS
    INSECURE TRUST REMOTE MODELSCOPE S3 DUMP TRACE PROFILER COMM DEV UPDATING SERIALIZATION STORE NETRC REGISTER
    EXECUTABLE COMMAND DEBUGGER OUT OUTPUT WEIGHTS""".split()  # noqa: SIM905 - a list of words reads best as words
)
_FINE = frozenset({"TZ", "LANG", "LC_ALL", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
_BAD = {
    "LLAMA_CACHE": "it carries a path",
    "VLLM_USE_RUST_FRONTEND": ANOTHER_SERVER,
    "VLLM_USE_RUST_BENCH": ANOTHER_SERVER,
    "SGLANG_RUST_SERVER": ANOTHER_SERVER,
}
_OURS_ENV = frozenset({"CUDA_VISIBLE_DEVICES", "HOME", "PORT"})


class ArgumentsRefused(RefusedError):
    """The policy says no to what somebody added."""

    code = "engine_arguments_refused"
    http_status = 422


def check_args(engine: str, args: Sequence[str]) -> list[str]:
    """Why `args` may not be added to this engine's command line, one sentence per word; empty when they may.

    `command` and `container` have no table: the whole command is the operator's own. Of any other engine without one
    nothing is known, so nothing passes.
    """
    table = _TABLES.get(engine)
    problems = []
    if table is None and engine not in _OWN_COMMAND and any(word.startswith("-") for word in args):
        return [f"argument {args[0][:60]!r} of {engine}: llmgw knows no flags of this engine, so none may be added"]
    for word in args:
        reason = _judge_word(word, table)
        if reason:
            problems.append(f"argument {word[:60]!r} of {engine}: {reason}")
    return problems


def check_env(engine: str, env: Mapping[str, str]) -> list[str]:
    """Why the variables may not be set, one sentence per variable; empty when they may."""
    table = _TABLES.get(engine)
    problems = []
    for name, value in env.items():
        reason = _judge_variable(name, value, table)
        if reason:
            problems.append(f"environment {name[:60]!r} of {engine}: {reason}")
    return problems


def require_allowed(engine: str, args: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises: ArgumentsRefused with every reason."""
    problems = check_args(engine, args) + check_env(engine, env)
    if problems:
        raise ArgumentsRefused("; ".join(problems), hint="remove it from runtimes.<id>.args or .env")


def find_flag(engine: str, args: Sequence[str], *names: str) -> str:
    """The first word that the engine would, or might, read as one of these flags; empty: none. For a flag that is no
    harm by itself, but does not go together with what llmgw does."""
    table = _TABLES.get(engine)
    if table is None:
        return ""
    return next((word for word in args if word.startswith("-") and _may_be(_normal(word, table), names, table)), "")


def _may_be(flag: str, names: Sequence[str], table: FlagTable) -> bool:
    is_prefix = table.prefixes and flag.startswith("--") and len(flag) > len("--")
    return any(name == flag or (is_prefix and name.startswith(flag)) for name in names)


def _judge_word(word: str, table: FlagTable | None) -> str:
    if not is_clean(word):
        return "it has a control character or is no valid text"
    if len(word.encode()) > _WORD_MAX_BYTES:
        return f"it is longer than {_WORD_MAX_BYTES} bytes"
    if table is None or not word.startswith("-") or _NUMBER.match(word):
        return ""
    if word in ("-", "--"):
        return "a dash alone is not a flag"
    return _judge_flag(_normal(word, table), table)


def _normal(word: str, table: FlagTable) -> str:
    """The flag as the table spells it, without a value that hangs on it."""
    flag = word.partition("=")[0]
    if table.dotted:
        flag = flag.partition(".")[0]
    return "--" + flag[2:].replace("_", "-") if table.underscores and flag.startswith("--") else flag


def _judge_flag(flag: str, table: FlagTable) -> str:
    if flag in table.allowed or flag in table.short:
        return ""
    if flag in table.refused:
        return table.refused[flag]
    if not flag.startswith("--"):
        return "llmgw does not know this flag, and a short name does not say what it does"
    if table.strict:
        return "llmgw does not know this flag, and passes only those that it knows to this engine"
    return _judge_unlisted(flag, table)


def _judge_unlisted(flag: str, table: FlagTable) -> str:
    """A long flag that is neither refused nor allowed by its whole name."""
    for pattern, reason in table.patterns:
        if re.fullmatch(pattern, flag):
            return reason
    if table.prefixes:
        for known, reason in table.refused.items():
            if known.startswith(flag):
                return f"it may be read as {known}, and {reason}"
    lowered = flag.lower()
    if lowered != flag:
        return _judge_flag(lowered, table)
    suspicious = sorted(SUSPICIOUS.intersection(re.split(r"[-_.]", flag)))
    if suspicious:
        return f"llmgw does not know this flag, and {suspicious[0]!r} in its name suggests a file, an address or a key"
    return ""


def _judge_variable(name: str, value: str, table: FlagTable | None) -> str:
    if not _VARIABLE.fullmatch(name):
        return "that is not the name of a variable"
    if not is_clean(value.replace("\t", " ")):
        return "its value has a control character or is no valid text"
    if len(value.encode()) > _WORD_MAX_BYTES:
        return f"its value is longer than {_WORD_MAX_BYTES} bytes"
    if name in _OURS_ENV:
        return "llmgw sets it itself"
    if table is not None:
        stands_for = _flag_of_variable(name, table)
        if stands_for:
            reason = _judge_flag(stands_for, table)
            return f"it stands for {stands_for}: {reason}" if reason else ""
    if name in _FINE or name in _BAD:
        return _BAD.get(name, "")
    if not name.startswith(_FAMILIES):
        return f"only tuning variables may be set ({', '.join(_FAMILIES[:6])}…)"
    bad = sorted(set(name.split("_")) & _BAD_WORDS)
    return f"{bad[0]!r} in its name: it carries a path, a library, an address or a credential" if bad else ""


def _flag_of_variable(name: str, table: FlagTable) -> str:
    if name in table.environment:
        return table.environment[name]
    if table.environment_prefix and name.startswith(table.environment_prefix):
        return "--" + name.removeprefix(table.environment_prefix).lower().replace("_", "-")
    return ""
