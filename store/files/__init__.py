"""Files that all nodes need: in a folder, or in a bucket of an S3-compatible object store with a local copy."""
