"""The stock Python client: a replica of a whole database and one transaction.

    stock_python.py REMOTE SCHEMA TABLE KEY VALUE

Prints the number of rows of every table as JSON, then sets external_ids:KEY
to VALUE in the one row of TABLE. Run as a process of its own, because the
package `ovs` may be missing.
"""

import json
import sys
import time

import ovs.db.idl
import ovs.poller

PATIENCE = 60


def main():
    remote, schema, table, key, value = sys.argv[1:]
    wanted = ovs.db.idl.SchemaHelper(schema)
    wanted.register_all()
    idl = ovs.db.idl.Idl(remote, wanted)
    run_until(idl, lambda: idl.has_ever_connected())
    print(json.dumps({name: len(held.rows) for name, held in idl.tables.items()}))

    transaction = ovs.db.idl.Transaction(idl)
    row = next(iter(idl.tables[table].rows.values()))
    row.setkey("external_ids", key, value)
    status = transaction.commit_block()
    if status != ovs.db.idl.Transaction.SUCCESS:
        sys.exit(f"transaction: {status}")
    run_until(idl, lambda: row.external_ids.get(key) == value)
    idl.close()


def run_until(idl, condition):
    end = time.monotonic() + PATIENCE
    idl.run()
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"nothing after {PATIENCE} s")
        poller = ovs.poller.Poller()
        idl.wait(poller)
        poller.timer_wait(1000)
        poller.block()
        idl.run()


main()
