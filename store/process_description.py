"""What processes of one database know about each other: their version and configuration."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"parley (\S+) (\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDescription:
    """A process that uses a database.

    Attributes:
        version: The version of Parley, up to 40 characters, without spaces.
        configuration: A digest of its configuration file, up to 16 letters and digits; "" = it has none.
    """

    version: str
    configuration: str

    @property
    def application_name(self) -> str:
        """The name of its connection, as PostgreSQL shows it to other processes."""
        return f"parley {self.version} {self.configuration}"

    def differences(self, application_name: str) -> str:
        """Return what differs in the process with a connection of that name, in sentences; "" = nothing known.

        >>> mine = ProcessDescription(version="1.1.0", configuration="ab12")
        >>> mine.differences("parley 1.0.0 ab12")
        'It runs version 1.0.0, this process 1.1.0.'
        >>> mine.differences("parley 1.1.0 cd34")
        'Its configuration file differs.'
        >>> mine.differences("parley 1.1.0 ab12"), mine.differences("psql")
        ('', '')
        """
        if (match := _NAME.fullmatch(application_name)) is None:
            return ""
        sentences = []
        if match[1] != self.version:
            sentences.append(f"It runs version {match[1]}, this process {self.version}.")
        if match[2] != self.configuration:
            sentences.append("Its configuration file differs.")
        return " ".join(sentences)
