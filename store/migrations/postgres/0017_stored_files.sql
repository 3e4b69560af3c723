CREATE TABLE file_area (
    area TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);
CREATE TABLE stored_file (
    area TEXT COLLATE "C" NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    object TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    mode BIGINT NOT NULL,
    modified_ns BIGINT NOT NULL,
    target TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (area, path)
);
