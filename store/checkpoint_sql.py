"""SQL for the states of threads: LangGraph's two tables, and Parley's table of message chunks."""

GET_CHUNKS = """
SELECT name, type, value FROM message_chunks
WHERE thread_id = :thread_id AND name IN (SELECT value FROM json_each(:names))
"""
MISSING_CHUNKS = """
SELECT value AS name FROM json_each(:names)
WHERE value NOT IN (SELECT name FROM message_chunks WHERE thread_id = :thread_id)
"""
PUT_CHUNK = """
INSERT INTO message_chunks (thread_id, name, type, value) VALUES (:thread_id, :name, :type, :value)
"""
# If a thread only grew, its newest checkpoint needs all of its chunks, and comparing the counts is enough.
MAY_HAVE_ORPHANED_CHUNKS = """
SELECT (SELECT count(*) FROM message_chunks WHERE thread_id = :thread_id) > coalesce((
    SELECT json_array_length(chunks) FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = ''
    ORDER BY checkpoint_id DESC LIMIT 1), 0) AS may
"""
ORPHANED_CHUNKS = """
DELETE FROM message_chunks WHERE thread_id = :thread_id AND name NOT IN (
    SELECT needed.value FROM checkpoints, json_each(checkpoints.chunks) AS needed
    WHERE checkpoints.thread_id = :thread_id AND checkpoints.chunks IS NOT NULL)
"""
PUT = """
INSERT INTO checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata, chunks)
VALUES (:thread_id, :ns, :id, :parent, :type, :checkpoint, :metadata, :chunks)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE SET
    parent_checkpoint_id = excluded.parent_checkpoint_id, type = excluded.type, checkpoint = excluded.checkpoint,
    metadata = excluded.metadata, chunks = excluded.chunks
"""
_PUT_WRITE = """
INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
VALUES (:thread_id, :ns, :id, :task_id, :task_path, :idx, :channel, :type, :value)
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
"""
PUT_WRITE = f"{_PUT_WRITE} DO NOTHING"
REPLACE_WRITE = f"""{_PUT_WRITE} DO UPDATE SET task_path = excluded.task_path, channel = excluded.channel,
    type = excluded.type, value = excluded.value
"""
GET = """
SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata, chunks FROM checkpoints
WHERE thread_id = :thread_id AND checkpoint_ns = :ns AND (CAST(:id AS TEXT) IS NULL OR checkpoint_id = :id)
ORDER BY checkpoint_id DESC LIMIT 1
"""
NEWEST_ID = """
SELECT checkpoint_id FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = :ns
ORDER BY checkpoint_id DESC LIMIT 1
"""
HISTORY = "__history__"
"""Task ID of rows in `writes` that contain a channel's history from before their checkpoint. No task has this ID."""
GET_WRITES = f"""
SELECT task_id, task_path, idx, channel, type, value FROM writes
WHERE thread_id = :thread_id AND checkpoint_ns = :ns AND checkpoint_id = :id AND task_id <> '{HISTORY}'
"""  # noqa: S608 - literals only
LINEAGE = """
WITH RECURSIVE lineage (checkpoint_id, parent_checkpoint_id, metadata) AS (
    SELECT checkpoint_id, parent_checkpoint_id, metadata FROM checkpoints
    WHERE thread_id = :thread_id AND checkpoint_ns = :ns AND checkpoint_id = :id
    UNION
    SELECT older.checkpoint_id, older.parent_checkpoint_id, older.metadata
    FROM lineage CROSS JOIN checkpoints AS older
    WHERE older.thread_id = :thread_id AND older.checkpoint_ns = :ns
        AND older.checkpoint_id = lineage.parent_checkpoint_id
)
SELECT checkpoint_id, parent_checkpoint_id, metadata FROM lineage
"""
GET_CHANNEL_WRITES = """
SELECT checkpoint_id, task_id, task_path, idx, channel, type, value FROM writes
WHERE thread_id = :thread_id AND checkpoint_ns = :ns
    AND checkpoint_id IN (SELECT value FROM json_each(:ids))
    AND channel IN (SELECT value FROM json_each(:channels))
"""
LIST = """
SELECT thread_id, checkpoint_ns, checkpoint_id, metadata FROM checkpoints
WHERE (CAST(:thread_id AS TEXT) IS NULL OR thread_id = :thread_id)
    AND (CAST(:ns AS TEXT) IS NULL OR checkpoint_ns = :ns)
    AND (CAST(:id AS TEXT) IS NULL OR checkpoint_id = :id)
    AND (CAST(:before AS TEXT) IS NULL OR checkpoint_id < :before)
ORDER BY checkpoint_id DESC
"""
LIST_THREAD = LIST.replace(
    "(CAST(:thread_id AS TEXT) IS NULL OR thread_id = :thread_id)", "thread_id = :thread_id"
)
COUNT = """
SELECT count(*) AS n FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = ''
"""
OLDEST_KEPT = """
SELECT checkpoint_id FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = ''
ORDER BY checkpoint_id DESC LIMIT 1 OFFSET :keep - 1
"""
# IDs grow with time across all namespaces. The namespace of a subgraph's run contains a task ID after a colon, and ends
# with the checkpoint that it belongs to. A namespace without a task ID is a subgraph with its own memory, whose newest
# checkpoint is always kept.
_PRUNED = """
{0}.thread_id = :thread_id AND {0}.checkpoint_id < :oldest AND (
    {0}.checkpoint_ns = '' OR {0}.checkpoint_ns LIKE '%:%' OR {0}.checkpoint_id < (
        SELECT max(newest.checkpoint_id) FROM checkpoints AS newest
        WHERE newest.thread_id = :thread_id AND newest.checkpoint_ns = {0}.checkpoint_ns))
"""
PRUNE = f"DELETE FROM checkpoints WHERE {_PRUNED.format('checkpoints')}"  # noqa: S608 - literals only
# The checkpoints that are kept but lose their parent.
PRUNED_PARENTS = f"""
SELECT child.checkpoint_ns, child.checkpoint_id, child.metadata
FROM checkpoints AS child CROSS JOIN checkpoints AS parent
WHERE child.thread_id = :thread_id AND {_PRUNED.format("parent")}
    AND parent.checkpoint_ns = child.checkpoint_ns AND parent.checkpoint_id = child.parent_checkpoint_id
    AND NOT ({_PRUNED.format("child")})
"""  # noqa: S608 - literals only
PRUNE_WRITES = """
DELETE FROM writes WHERE thread_id = :thread_id AND checkpoint_id < :oldest AND NOT EXISTS (
    SELECT 1 FROM checkpoints WHERE checkpoints.thread_id = writes.thread_id
        AND checkpoints.checkpoint_ns = writes.checkpoint_ns
        AND checkpoints.checkpoint_id = writes.checkpoint_id)
"""
FORGET_RUN = """
DELETE FROM checkpoints WHERE thread_id = :thread_id
    AND json_extract(metadata, '$.run_id') = :run_id
"""
ORPHANED_WRITES = """
DELETE FROM writes WHERE thread_id = :thread_id AND checkpoint_id NOT IN (
    SELECT checkpoint_id FROM checkpoints WHERE thread_id = :thread_id)
"""
# Deletes what a resumed run wrote at the checkpoint it resumed from, which is the newest again: the answers, and the
# results of the tasks that asked the questions. If no task there asked or failed, all results are deleted, because an
# earlier run would have continued to the next checkpoint. Otherwise the results of other tasks stay, because an earlier
# run may have stored them.
FORGET_RESULTS = """
DELETE FROM writes WHERE thread_id = :thread_id AND checkpoint_id >= (
    SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :thread_id AND checkpoint_ns = '') AND (
    channel = '__resume__' OR (idx >= 0 AND (
        EXISTS (
            SELECT 1 FROM writes AS asked WHERE asked.thread_id = writes.thread_id
                AND asked.checkpoint_ns = writes.checkpoint_ns
                AND asked.checkpoint_id = writes.checkpoint_id
                AND asked.task_id = writes.task_id AND asked.channel = '__interrupt__')
        OR NOT EXISTS (
            SELECT 1 FROM writes AS ended WHERE ended.thread_id = writes.thread_id
                AND ended.checkpoint_ns = writes.checkpoint_ns
                AND ended.checkpoint_id = writes.checkpoint_id
                AND ended.channel IN ('__interrupt__', '__error__')))))
"""
DELETE_THREAD = (
    "DELETE FROM checkpoints WHERE thread_id = :thread_id",
    "DELETE FROM writes WHERE thread_id = :thread_id",
    "DELETE FROM message_chunks WHERE thread_id = :thread_id",
)
ROLLBACK = (FORGET_RUN, ORPHANED_WRITES, FORGET_RESULTS, ORPHANED_CHUNKS)
"""Restores a thread's state from before a run, in this order."""

# The metadata of a checkpoint names its thread; the copy's metadata names the copy.
COPY_THREAD = (
    """
    INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
        metadata, chunks)
    SELECT :target, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
        json_set(metadata, '$.thread_id', :target), chunks
    FROM checkpoints WHERE thread_id = :source
    """,
    """
    INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
    SELECT :target, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    FROM writes WHERE thread_id = :source
    """,
    """
    INSERT INTO message_chunks (thread_id, name, type, value)
    SELECT :target, name, type, value FROM message_chunks WHERE thread_id = :source
    """,
)
"""Copies the checkpoints of one thread to a thread that has none."""
