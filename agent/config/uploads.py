"""The `uploads` section."""

from agent.config.section import Section


class UploadsConfig(Section):
    """How to handle files that users send."""

    auto_convert_documents: bool = True
