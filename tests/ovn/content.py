"""What a database holds, made comparable between two runs.

Row UUIDs are random, so each is replaced by a hash of what the row holds and
of what it refers to: first the table's name, then, round after round, the
hash of the row with its references replaced by the hashes of the round
before, until a round tells no more rows apart. Two databases are equal when
every table has the same hashes, equally often.
"""

import collections
import hashlib
import json
import re

from processes import run

# Columns that hold times, counters of a running process, or what the machine
# at hand decides; everything else must be equal.
VOLATILE = {
    ("NB_Global", "nb_cfg_timestamp"),
    ("NB_Global", "sb_cfg_timestamp"),
    ("NB_Global", "hv_cfg_timestamp"),
    ("SB_Global", "nb_cfg_timestamp"),
    ("Chassis_Private", "nb_cfg_timestamp"),
    ("Interface", "statistics"),
    ("Interface", "link_resets"),
    ("Interface", "mac_in_use"),
    ("Port", "bond_active_slave"),
    ("Open_vSwitch", "statistics"),
}

# Notation of an empty set.
EMPTY = ["set", []]

# Rounds after which a graph of references that still changes is given up.
ROUNDS_MAX = 30

UUID = re.compile(r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}")
# northd's flows name the row they come from by the first word of its UUID.
HINT = re.compile(r"[0-9a-f]{8}")


class Database:
    """Rows by UUID, as one `ovsdb-client dump` shows them, and what the schema says of them."""

    def __init__(self, tables, schema):
        # (table, uuid) -> {column: value in JSON notation}
        self.rows = {}
        for table in tables:
            name = table["caption"].removesuffix(" table")
            for line in table["data"]:
                row = dict(zip(table["headings"], line))
                uuid = row.pop("_uuid")[1]
                self.rows[name, uuid] = row
        self.uuids = {uuid for _, uuid in self.rows}
        self.ephemeral = {(t, c) for t, c, kind in _columns(schema) if kind.get("ephemeral")}
        self.weak = {(t, c) for t, c, kind in _columns(schema) if "weak" in json.dumps(kind)}

    def dangling(self):
        """(table, uuid, column, target) of weak references to rows that do not exist.

        No server should leave one. The reference 3.1.0 does now and then in
        Logical_DP_Group, and drops it when it reads the file again.
        """
        return [
            (table, uuid, column, atom[1])
            for (table, uuid), row in self.rows.items()
            for column, value in row.items()
            if (table, column) in self.weak and value[0] == "set"
            for atom in value[1]
            if atom[1] not in self.uuids
        ]

    def settled_rows(self):
        """The rows without dangling references."""
        rows = {key: dict(row) for key, row in self.rows.items()}
        for table, uuid, column, _ in self.dangling():
            kept = [atom for atom in rows[table, uuid][column][1] if atom[1] in self.uuids]
            rows[table, uuid][column] = kept[0] if len(kept) == 1 else ["set", kept]
        return rows

    def persistent(self):
        """The rows as a restart must show them: all but ephemeral columns."""
        return {
            key: {c: v for c, v in row.items() if (key[0], c) not in self.ephemeral}
            for key, row in self.settled_rows().items()
        }

    def count(self, table):
        return sum(1 for name, _ in self.rows if name == table)


def _columns(schema):
    return [(table, column, kind) for table, definition in schema["tables"].items()
            for column, kind in definition["columns"].items()]


def dump(socket, database):
    """Reads a whole database with the stock client."""
    client = ["ovsdb-client", "--timeout=60", "--format=json"]
    text = run([*client, "dump", f"unix:{socket}", database])
    schema = json.loads(run([*client, "get-schema", f"unix:{socket}", database]))
    return Database([json.loads(line) for line in text.splitlines() if line], schema)


class Content:
    """Several databases that name each other's rows, as hashes free of UUIDs."""

    def __init__(self, databases):
        self.rows = {}
        for database in databases:
            for (table, uuid), row in database.settled_rows().items():
                kept = {c: v for c, v in row.items() if (table, c) not in VOLATILE}
                self.rows[table, uuid] = kept
        self.hints = {uuid[:8]: uuid for _, uuid in self.rows}
        self.history = self._refine()

    def _refine(self):
        """The label of every row, for each round: the last round is the finest."""
        labels = {uuid: table for table, uuid in self.rows}
        history = [labels]
        classes = len(set(labels.values()))
        for _ in range(ROUNDS_MAX):
            labels = {uuid: self._label(table, row, history[-1])
                      for (table, uuid), row in self.rows.items()}
            history.append(labels)
            finer = len(set(labels.values()))
            if finer == classes and len(history) > 2:
                return history
            classes = finer
        raise RuntimeError("references do not come to rest")

    def _label(self, table, row, labels):
        text = json.dumps([table, self._columns(table, row, labels)], sort_keys=True)
        return table + ":" + hashlib.sha256(text.encode()).hexdigest()[:16]

    def _columns(self, table, row, labels):
        columns = {column: self._value(value, labels) for column, value in row.items()}
        if table == "Logical_Flow" and row["logical_dp_group"] != EMPTY:
            # A flow of several datapaths hints at the source of any one of them.
            pairs = columns["external_ids"][1]
            columns["external_ids"] = ["map", [p for p in pairs if p[0] != "stage-hint"]]
        return columns

    def _value(self, value, labels):
        """A datum with UUIDs replaced; sets and maps are sorted anew, for theirs is by UUID."""
        if isinstance(value, list) and len(value) == 2:
            kind, inner = value
            if kind == "uuid":
                return ["uuid", labels.get(inner, "unknown row")]
            if kind == "set":
                return ["set", sorted((self._value(v, labels) for v in inner), key=json.dumps)]
            if kind == "map":
                pairs = [[self._value(k, labels), self._value(v, labels)] for k, v in inner]
                return ["map", sorted(pairs, key=json.dumps)]
        if isinstance(value, str):
            return self._string(value, labels)
        return value

    def _string(self, text, labels):
        if HINT.fullmatch(text) and text in self.hints:
            return f"<{labels[self.hints[text]]}>"
        return UUID.sub(
            lambda m: f"<{labels.get(m.group().replace('_', '-'), 'unknown row')}>", text)

    def multiset(self, round_number):
        return collections.Counter(self._round(round_number).values())

    def example(self, label, number):
        """Table and comparable columns of a row that has `label` after round `number`."""
        labels = self._round(number)
        for (table, uuid), row in self.rows.items():
            if labels[uuid] == label:
                return table, self._columns(table, row, self._round(number - 1))
        raise KeyError(label)

    def _round(self, number):
        return self.history[max(0, min(number, len(self.history) - 1))]


def differences(left, right, limit=10):
    """Lines that say how two contents differ; none when they are equal.

    The earliest round that differs is shown: there the rows at fault are not
    yet drowned by the rows that refer to them.
    """
    for number in range(max(len(left.history), len(right.history))):
        ours, theirs = left.multiset(number), right.multiset(number)
        if ours != theirs:
            break
    else:
        return []
    missing = [left.example(label, number) for label in sorted(ours - theirs)]
    extra = [right.example(label, number) for label in sorted(theirs - ours)]
    lines = []
    for table, columns in missing:
        partner = _most_alike(table, columns, extra)
        if partner is None:
            lines.append(f"  - {table} {_short(columns)}")
            continue
        extra.remove((table, partner))
        lines.append(f"  differs: {table} {_short(_same(columns, partner))}")
        for column in columns:
            if columns[column] != partner.get(column):
                old, new = _without_shared(columns[column], partner.get(column))
                lines += [f"    - {column}: {_short(old)}", f"    + {column}: {_short(new)}"]
    lines += [f"  + {table} {_short(columns)}" for table, columns in extra]
    if len(lines) > 3 * limit:
        lines = lines[:3 * limit] + [f"  and {len(lines) - 3 * limit} lines more"]
    return lines


def _most_alike(table, columns, rows):
    """The row that equals in the most columns, if it equals in any."""
    alike = [(sum(columns[c] == row.get(c) for c in columns), row)
             for name, row in rows if name == table]
    equal, row = max(alike, key=lambda pair: pair[0], default=(0, None))
    return row if equal else None


def _same(columns, partner):
    return {c: v for c, v in columns.items() if v == partner.get(c) and v not in ("", EMPTY)}


def _without_shared(old, new):
    """Two sets or maps without the elements that both have."""
    if not all(isinstance(v, list) and v[0] in ("set", "map") for v in (old, new)):
        return old, new
    return tuple([v[0], [e for e in v[1] if e not in w[1]]]
                 for v, w in ((old, new), (new, old)))


def _short(value):
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 600 else f"{text[:600]}... ({len(text)} bytes)"


def restart_differences(before, after, limit=10):
    """Lines that say how a restart changed a database, UUIDs included."""
    old, new = before.persistent(), after.persistent()
    lines = []
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key):
            continue
        if key not in new:
            lines.append(f"  lost {key}: {json.dumps(old[key])}")
        elif key not in old:
            lines.append(f"  appeared {key}: {json.dumps(new[key])}")
        else:
            changed = {c: [old[key].get(c), new[key].get(c)] for c in old[key]
                       if old[key].get(c) != new[key].get(c)}
            lines.append(f"  changed {key}: {json.dumps(changed)}")
    if len(lines) > limit:
        lines = lines[:limit] + [f"  and {len(lines) - limit} rows more"]
    return lines
