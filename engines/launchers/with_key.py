"""Starts an engine written in Python with its key: `PYTHON with_key.py KEY_FILE WAY MODULE ARGUMENTS…`. Never imported.

vLLM and SGLang take a key on the command line, where every user of the machine reads it in /proc. So the unit names
the key's file, and this script, run by the engine's own interpreter, hands the key on inside the process:

    env:NAME   as an environment variable (set after the start, so not in this process's /proc/PID/environ)
    flag:NAME  as an argument, added to `sys.argv` only

SGLang writes all its arguments into its log, so the key is blotted out of whatever this process logs.

It stands alone in its folder: Python puts a script's folder first on `sys.path`, and a `plan.py` or `policy.py` of
ours would hide the engine's. Written for every Python that an engine may bring (3.9 and later).
"""

import logging
import os
import runpy
import sys


def blot_out(key: str) -> None:
    """Replace the key in every log message of this process, however the engine sets up its logging later."""
    make_record = logging.getLogRecordFactory()

    def make_clean_record(*args: object, **kwargs: object) -> logging.LogRecord:
        record: logging.LogRecord = make_record(*args, **kwargs)
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a broken message of the engine's is the engine's to report
            return record
        if key in message:
            record.msg, record.args = message.replace(key, "(key)"), None
        return record

    logging.setLogRecordFactory(make_clean_record)


def main() -> None:
    """Read the key, then become the module."""
    key_file, way, module, *arguments = sys.argv[1:]
    with open(key_file, encoding="utf-8") as file:
        key = file.read().strip()
    if not key:
        sys.exit(f"{key_file} holds no key")
    blot_out(key)
    how, _, name = way.partition(":")
    if how == "env":
        os.environ[name] = key
    else:
        arguments = [name, key, *arguments]
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.argv = [module, *arguments]
    # alter_sys: processes that the engine spawns look for the module under the name of __main__.
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
