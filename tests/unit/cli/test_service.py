"""Reading what `systemctl show` says of several units."""

from cli.service import parse_show

RECORDED = """\
MainPID=4711
Id=llmgw-daemon.service
Description=llmgw: the node's daemon = root
LoadState=loaded
ActiveState=active
SubState=running

Id=llmgw.target
Description=llmgw
LoadState=loaded
ActiveState=active
SubState=active

Id=llmgw-gateway.service
MainPID=
LoadState=not-found
ActiveState=inactive
SubState=dead
"""


def test_units_are_read_in_order_and_a_unit_without_a_process_has_none() -> None:
    rows = parse_show(RECORDED)

    assert [(row.unit, row.active, row.pid) for row in rows] == [
        ("llmgw-daemon.service", "active", 4711),
        ("llmgw.target", "active", 0),
        ("llmgw-gateway.service", "inactive", 0),
    ]
    assert rows[0].description == "llmgw: the node's daemon = root"


def test_nothing_and_garbage_are_no_units() -> None:
    assert parse_show("") == []
    assert parse_show("\n\nFailed to connect\n\nx=y\n") == []
