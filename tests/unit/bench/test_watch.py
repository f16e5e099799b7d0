"""What is read of the tables of `strace -c`, with and without calls that failed."""

from tests.bench.counts.watch import parse_strace

TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 53.81    0.113236           5     19780           write
 22.92    0.048225           2     19708           read
  0.00    0.000006           3         2         2 newfstatat
  0.00    0.000000           0        14           rt_sigaction
------ ----------- ----------- --------- --------- ----------------
100.00    0.210438           3     39504         2 total
"""


def test_every_call_is_read_by_its_name_and_the_sum_is_none_of_them() -> None:
    assert parse_strace(TABLE) == {"write": 19780, "read": 19708, "newfstatat": 2, "rt_sigaction": 14}


def test_no_calls_are_no_table() -> None:
    assert parse_strace("") == {}
