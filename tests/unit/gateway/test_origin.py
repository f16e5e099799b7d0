"""Which web pages may ask the admin class."""

import pytest

from gateway.errors import ApiError
from gateway.origin import BrowserFacts, check_origin

OWN = "127.0.0.1:8100"

ROWS = [
    # (host, origin, sec-fetch-site, loopback bind, allowed)
    (OWN, "", "", True, True),
    ("localhost:8100", "", "", True, True),
    ("[::1]:8100", "", "", True, True),
    ("", "", "", True, True),
    (OWN, "", "none", True, True),
    (OWN, "", "same-origin", True, True),
    (OWN, f"http://{OWN}", "same-origin", True, True),
    ("gpu-3.lan:8100", "", "", False, True),
    ("gpu-3.lan", "https://gpu-3.lan", "same-origin", False, True),
    ("evil.example", "", "", True, False),
    ("evil.example:8100", "http://evil.example:8100", "same-origin", True, False),
    ("127.0.0.1.evil.example", "", "", True, False),
    ("127.0.0.1@evil.example", "", "", True, False),
    ("user@127.0.0.1", "", "", True, False),
    ("127.0.0.1/x", "", "", True, False),
    ("127.0.0.1?x", "", "", False, False),
    (OWN, "", "cross-site", True, False),
    (OWN, "", "same-site", True, False),
    ("gpu-3.lan", "", "cross-site", False, False),
    (OWN, "null", "", True, False),
    (OWN, "http://evil.example", "", True, False),
    (OWN, "http://127.0.0.1:9999", "", True, False),
    (OWN, "http://127.0.0.1", "", True, False),
    (OWN, f"http://{OWN}/path", "", True, False),
    (OWN, f"http://u@{OWN}", "", True, False),
    (OWN, f"file://{OWN}", "", True, False),
    (OWN, "http://[", "", True, False),
    ("gpu-3.lan", "http://evil.example", "same-origin", False, False),
]


@pytest.mark.parametrize(("host", "origin", "site", "loopback", "allowed"), ROWS)
def test_only_our_own_pages_and_no_page_at_all_may_ask(
    host: str, origin: str, site: str, loopback: bool, allowed: bool
) -> None:
    facts = BrowserFacts(host=host, origin=origin, fetch_site=site)
    if allowed:
        check_origin(facts, loopback=loopback)
        return
    with pytest.raises(ApiError) as caught:
        check_origin(facts, loopback=loopback)
    assert (caught.value.http_status, caught.value.code) == (403, "admin_origin_denied")
