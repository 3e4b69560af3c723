"""Protection against server-side request forgery (SSRF)."""
