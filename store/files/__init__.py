"""The files that all nodes need: in a folder, or in a bucket of an S3-compatible service with local copies."""
