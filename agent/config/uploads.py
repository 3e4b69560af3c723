"""The `uploads` section."""

from agent.config.section import Section


class UploadsConfig(Section):
    """What happens to files that users send."""

    auto_convert_documents: bool = True
