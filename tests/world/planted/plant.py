#!/usr/bin/env python3
"""Copies a source of the product with a bug in it that sleeps until a test wakes it: plant.py SOURCE OUTPUT BUG.

Each bug is a statement at the beginning of one function. The product itself has no trace of it: only the test program is
linked with the copy. Fails when the function is not there (exactly once), so that a bug cannot be lost unseen.
"""
import pathlib
import re
import sys

WAKE = 'namespace weir::simtest { bool bug_strikes(const char* bug) noexcept; }\n'
BUGS = {
    # A grant is dropped: whoever waits for it waits for ever.
    "dropped_grant": (r"void ClientConn::grant\(uint64_t \w+\) noexcept \{\n",
                      '  if (::weir::simtest::bug_strikes("dropped_grant")) return;\n'),
    # A connection that closes stays on its pool's list of idle ones: it is used again when its memory is another's.
    "stale_pool_entry": (r"void Pool::conn_closing\(h1::ClientConn& \w+\) noexcept \{",
                         ' if (::weir::simtest::bug_strikes("stale_pool_entry")) return; '),
}


def main():
    source, output, bug = sys.argv[1:]
    signature, statement = BUGS[bug]
    text = pathlib.Path(source).read_text()
    found = re.findall(signature, text)
    if len(found) != 1:
        sys.exit(f"{source}: {signature!r} is there {len(found)} times; mend BUGS in tests/world/planted/plant.py")
    at = text.index(found[0]) + len(found[0])
    pathlib.Path(output).write_text(WAKE + f'#line 1 "{source}"\n' + text[:at] + statement + text[at:])


main()
