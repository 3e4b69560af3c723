"""The run engine: starts, streams, joins and cancels runs of any compiled graph. No HTTP."""
