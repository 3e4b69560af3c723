-- The files that all nodes need, if they are in a bucket. An area is a folder that is copied as a whole, such as that
-- of a thread; its version grows with each change. A row of `stored_file` names the object with the content of a file.
-- `path` is percent-encoded: file names are bytes.
CREATE TABLE file_area (
    area TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE stored_file (
    area TEXT NOT NULL,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    object TEXT NOT NULL,
    size INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (area, path)
) STRICT, WITHOUT ROWID;
