"""A verifier of SQLite files by somebody who has docs/formats.md and Python, and nothing of ours.

It holds for ledgers from which nothing was pruned.
"""

import hashlib
import json
import sqlite3

CHILDREN = ["decision_traces", "decision_filters", "decision_rules", "candidates", "victims"]
ABOUT = {
    "decision_id": {"cycles": "id", "decisions": "id", **dict.fromkeys(CHILDREN, "decision_id")},
    "session_id": {"sessions": "id", "session_steps": "session_id"},
    "environment_id": {"environments": "id"},
    "activation_id": {"activations": "id"},
    "pruning_id": {"prunings": "id"},
}
ENVELOPE = ["subject_digest", "rows_digest", "at_ms", "actor", "environment"]
HASHED = ["format", "sequence", "previous", "kind", "revision", *ABOUT, *ENVELOPE]
SINCE_2 = ["process_uid", "process_user", "database_user"]
APART = ["valid_to", "manifest", "canonical"]
TRUTHS = ["eligible", "fits", "evaluate_all", "hypothetical", "evicted", "pdb_violating"]
TRUTHS += ["already_terminating", "unschedulable", "terminating", "global_default"]


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def text(values):
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def covered(db, entry):
    """(table, row) of everything that the entry's transaction wrote."""
    for column, tables in ABOUT.items():
        for table, key in tables.items() if entry[column] is not None else ():
            for row in db.execute(f"SELECT * FROM {table} WHERE {key} = ?", [entry[column]]):
                yield table, row
                if table in ("decisions", "sessions", "activations"):
                    one = "SELECT * FROM rule_sets WHERE id = ?"
                    yield from (("rule_sets", r) for r in db.execute(one, [row["rule_set_id"]]))
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%valid_to%'"
    versions = [found["name"] for found in db.execute(tables)]
    at = dict.fromkeys(versions, "valid_from") | {"revisions": "number"}
    at |= {"nominations": "made_revision", "nomination_ends": "ended_revision"}
    where = [entry["cluster_id"], entry["revision"]]
    for table, key in at.items():
        for row in db.execute(f"SELECT * FROM {table} WHERE cluster_id = ? AND {key} = ?", where):
            yield table, row
    for table in versions:
        ended = f"SELECT key, valid_from, valid_to FROM {table} WHERE cluster_id = ? AND valid_to"
        yield from (
            ("closed", {"table": table, **row}) for row in db.execute(f"{ended} = ?", where)
        )


def line(table, row, entry):
    """The row as the entry covers it."""
    left_out = APART if entry["format"] >= 2 else APART + SINCE_2
    cells = {name: row[name] for name in row if name not in left_out or table == "closed"}
    return text([table, *(bool(v) if name in TRUTHS else v for name, v in cells.items())])


def sound(table, row):
    """The texts that a line covers by their digest only."""
    if table == "rule_sets":
        return sha256(row["canonical"].encode()) == row["digest"]
    if "manifest" in row:
        return sha256(row["manifest"].encode()) == "sha256:" + row["digest"]
    return True


def verify(path):
    """Cluster to its number of entries, and the numbers of those that do not hold."""
    db = sqlite3.connect(path)
    db.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    found = {}
    for cluster in db.execute("SELECT id, name FROM clusters ORDER BY id").fetchall():
        ledger = "SELECT * FROM ledger WHERE cluster_id = ? ORDER BY sequence"
        sequence, previous, bad = 0, "sha256:" + 64 * "0", []
        for entry in db.execute(ledger, [cluster["id"]]).fetchall():
            rows = list(covered(db, entry))
            lines = sorted(line(table, row, entry) + b"\n" for table, row in rows)
            names = HASHED if entry["format"] < 2 else HASHED + SINCE_2
            hashed = text([cluster["id"], cluster["name"], *(entry[name] for name in names)])
            holds = entry["sequence"] == sequence + 1 and entry["previous"] == previous
            holds &= sha256(b"".join(lines)) == entry["rows_digest"]
            holds &= sha256(hashed) == entry["hash"] and all(sound(*one) for one in rows)
            bad += [] if holds else [entry["sequence"]]
            sequence, previous = entry["sequence"], entry["hash"]
        found[cluster["name"]] = (sequence, bad)
    db.close()
    return found
