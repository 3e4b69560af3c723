"""Setting Parley up: questions, trials, the files that are written, and the report of `parley doctor`."""
