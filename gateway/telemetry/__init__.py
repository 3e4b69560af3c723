"""OpenTelemetry: traces, metrics and logs by OTLP over HTTP. Imported only if an endpoint is configured."""
