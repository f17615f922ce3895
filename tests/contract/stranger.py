"""A verifier of SQLite files by somebody who has docs/formats.md and Python, nothing of ours."""

import hashlib
import json
import sqlite3

CHILDREN = [
    "decision_traces",
    "extender_calls",
    "decision_filters",
    "decision_rules",
    "candidates",
    "candidate_violations",
    "victims",
]
ABOUT = {
    "decision_id": {"cycles": "id", "decisions": "id", **dict.fromkeys(CHILDREN, "decision_id")},
    "session_id": {"sessions": "id", "session_steps": "session_id"},
    "environment_id": {"environments": "id"},
    "activation_id": {"activations": "id"},
    "pruning_id": {"prunings": "id"},
}
ABOUT_SINCE_2 = {
    "observation_id": {"observations": "id", "observed_victims": "observation_id"},
    "gap_id": {"gaps": "id"},
    "simulation_id": {"simulations": "id"},
    "scheduler_id": {"schedulers": "id"},
}
ENVELOPE = ["subject_digest", "rows_digest", "at_ms", "actor", "environment"]
HASHED = ["format", "sequence", "previous", "kind", "revision", *ABOUT, *ENVELOPE]
WRITTEN_BY = ["process_uid", "process_user", "database_user"]
APART = ["valid_to", "manifest", "canonical"]
TRUTHS = ["eligible", "fits", "evaluate_all", "hypothetical", "evicted", "pdb_violating"]
TRUTHS += ["already_terminating", "unschedulable", "terminating", "global_default", "scheduled"]
TRUTHS += ["reclaimable"]
TRUTHS += ["allocated", "counted"]


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def text(values):
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def versioned(db):
    """Tables whose rows are true from a revision to another one."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%valid_to%'"
    return [found["name"] for found in db.execute(tables)]


def with_rule_sets(db, table, row):
    """The row, and the rule sets that it names."""
    yield table, row
    for number in {row["rule_set_id"], row.get("previous_rule_set_id")} - {None}:
        for found in db.execute("SELECT * FROM rule_sets WHERE id = ?", [number]):
            yield "rule_sets", found


def checkpoint(db, pruning):
    """(table, row) of what a pruning left of the time up to its last revision."""
    cluster, upto = pruning["cluster_id"], pruning["last_revision"]
    revisions = "SELECT * FROM revisions WHERE cluster_id = ? AND number <= ?"
    yield from (("revisions", row) for row in db.execute(revisions, [cluster, upto]))
    for table in versioned(db):
        true = f"SELECT * FROM {table} WHERE cluster_id = ?1 AND valid_from <= ?2"
        true += " AND (valid_to IS NULL OR valid_to > ?2)"
        yield from ((table, row) for row in db.execute(true, [cluster, upto]))
    standing = "SELECT n.* FROM nominations n LEFT JOIN nomination_ends e"
    standing += " USING (cluster_id, made_revision, pod) WHERE cluster_id = ?1"
    standing += " AND made_revision <= ?2 AND coalesce(ended_revision, ?2 + 1) > ?2"
    yield from (("nominations", row) for row in db.execute(standing, [cluster, upto]))
    for table in ("prunings", "environments"):
        own = f"SELECT * FROM {table} WHERE cluster_id = ? AND id NOT IN"
        own += f" (SELECT {table[:-1]}_id FROM ledger WHERE {table[:-1]}_id IS NOT NULL)"
        yield from ((table, row) for row in db.execute(own, [cluster]))
    for table in ("activations", "schedulers"):
        own = f"SELECT a.* FROM {table} a JOIN environments e ON e.id = a.environment_id WHERE"
        own += f" e.cluster_id = ? AND a.id NOT IN (SELECT {table[:-1]}_id FROM ledger"
        own += f" WHERE {table[:-1]}_id IS NOT NULL)"
        for row in db.execute(own, [cluster]).fetchall():
            yield from with_rule_sets(db, table, row)


def covered(db, entry):
    """(table, row) of everything that the entry's transaction wrote."""
    for column, tables in {**ABOUT, **ABOUT_SINCE_2}.items():
        for table, key in tables.items() if entry[column] is not None else ():
            for row in db.execute(f"SELECT * FROM {table} WHERE {key} = ?", [entry[column]]):
                yield table, row
                if table in ("decisions", "sessions", "activations", "simulations", "schedulers"):
                    one = "SELECT * FROM rule_sets WHERE id = ?"
                    yield from (("rule_sets", r) for r in db.execute(one, [row["rule_set_id"]]))
    versions = versioned(db)
    at = dict.fromkeys(versions, "valid_from") | {"revisions": "number"}
    at |= {"nominations": "made_revision", "nomination_ends": "ended_revision"}
    at |= {"decision_outcomes": "revision", "session_outcomes": "revision"}
    where = [entry["cluster_id"], entry["revision"]]
    for table, key in at.items():
        for row in db.execute(f"SELECT * FROM {table} WHERE cluster_id = ? AND {key} = ?", where):
            yield table, row
    for table in versions:
        ended = f"SELECT key, valid_from, valid_to FROM {table} WHERE cluster_id = ? AND valid_to"
        yield from (
            ("closed", {"table": table, **row}) for row in db.execute(f"{ended} = ?", where)
        )


def truth(value):
    return None if value is None else bool(value)


def line(table, row, entry):
    """The row as the entry covers it."""
    left_out = APART if entry["format"] >= 2 else APART + WRITTEN_BY
    cells = {name: row[name] for name in row if name not in left_out or table == "closed"}
    return text([table, *(truth(v) if name in TRUTHS else v for name, v in cells.items())])


def digest_of(rows, entry):
    """The digest of all lines."""
    return sha256(b"".join(sorted(line(table, row, entry) + b"\n" for table, row in rows)))


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
        newest = "SELECT * FROM prunings WHERE cluster_id = ? ORDER BY id DESC LIMIT 1"
        pruning = db.execute(newest, [cluster["id"]]).fetchone()
        sequence, previous, bad = 0, "sha256:" + 64 * "0", []
        if pruning:
            sequence, previous = pruning["last_sequence"], pruning["last_hash"]
        for entry in db.execute(ledger, [cluster["id"]]).fetchall():
            rows = list(covered(db, entry))
            names = HASHED if entry["format"] < 2 else [*HASHED, *WRITTEN_BY, *ABOUT_SINCE_2]
            hashed = text([cluster["id"], cluster["name"], *(entry[name] for name in names)])
            holds = entry["sequence"] == sequence + 1 and entry["previous"] == previous
            holds &= digest_of(rows, entry) == entry["rows_digest"]
            holds &= sha256(hashed) == entry["hash"] and all(sound(*one) for one in rows)
            if pruning and entry["pruning_id"] == pruning["id"]:
                left = list(checkpoint(db, pruning))
                holds &= digest_of(left, entry) == pruning["checkpoint_digest"]
                holds &= all(sound(*one) for one in left)
            bad += [] if holds else [entry["sequence"]]
            sequence, previous = entry["sequence"], entry["hash"]
        found[cluster["name"]] = (sequence, bad)
    db.close()
    return found
