"""`{port}`, `{host}`, `{model}`, `{weights}`, `{home}` and `{keyFile}` in an operator's own words, filled in. Pure."""

from urllib.parse import urlsplit

from engines.adapter import KEY_FILE, EngineSpec
from engines.spec import is_clean

DEFAULT_HEALTH = "/health"
KEY_PLACEHOLDER = "{keyFile}"


def fill(word: str, spec: EngineSpec, key_file: str = KEY_FILE) -> str:
    """The word with the runtime's own values; every other brace is left as it is."""
    values = {
        "{port}": str(spec.port),
        "{host}": spec.host,
        "{model}": spec.served_models[0],
        "{weights}": str(spec.weights or ""),
        "{home}": str(spec.home),
        KEY_PLACEHOLDER: key_file,
    }
    # One pass from left to right: a value that looks like a placeholder is not filled again.
    out, rest = "", word
    while rest:
        name = next((name for name in values if rest.startswith(name)), "")
        out += values.get(name, rest[0])
        rest = rest[len(name) or 1 :]
    return out


def check_words(spec: EngineSpec) -> list[str]:
    """Everything wrong with the words of the command and with the health URL, as sentences."""
    problems = [f"command word {w[:60]!r} has a control character" for w in spec.command if not is_clean(w)]
    if spec.weights is None and any("{weights}" in word for word in (*spec.command, *spec.args)):
        problems.append("the command asks for {weights}, but the runtime has none")
    return problems + _check_health_url(spec.health_url)


def _check_health_url(url: str) -> list[str]:
    if not url or url.startswith("/"):
        return [] if is_clean(url) and " " not in url else ["the health URL has a space or a control character"]
    try:
        parts = urlsplit(url.replace("{port}", "1").replace("{host}", "h"))
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known or not is_clean(url) or " " in url:
        return [f"health URL {url[:80]!r} is neither a path nor an http(s) URL"]
    return []
