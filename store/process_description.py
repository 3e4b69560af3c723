"""The version and configuration that the processes of one database show each other."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"parley (\S+) (\w*) \d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDescription:
    """A process that uses a database.

    Attributes:
        version: The version of Parley, up to 40 characters, without spaces.
        configuration: A digest of its configuration file, up to 16 letters and digits; "" = it has none.
        name: `node.name` of its configuration.
    """

    version: str = ""
    configuration: str = ""
    name: str = ""

    def application_name(self, number: int) -> str:
        """Return the name for its connection as a node. PostgreSQL shows this name to other processes."""
        return f"parley {self.version or '-'} {self.configuration} {number}"

    def differences(self, application_name: str) -> str:
        """Return sentences that say how the node with a connection of this name differs; "" = no known difference.

        >>> mine = ProcessDescription(version="1.1.0", configuration="ab12")
        >>> mine.differences("parley 1.0.0 ab12 7")
        'It runs version 1.0.0, this process 1.1.0.'
        >>> mine.differences("parley 1.1.0 cd34 7")
        'Its configuration file differs.'
        >>> mine.differences("parley 1.1.0 ab12 7"), mine.differences("psql")
        ('', '')
        """
        if not self.version or (match := _NAME.fullmatch(application_name)) is None:
            return ""
        sentences = []
        if match[1] != self.version:
            sentences.append(f"It runs version {match[1]}, this process {self.version}.")
        if match[2] != self.configuration:
            sentences.append("Its configuration file differs.")
        return " ".join(sentences)


UNDESCRIBED = ProcessDescription()
"""A process that describes nothing."""
