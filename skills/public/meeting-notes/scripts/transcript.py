"""Makes a readable transcript from captions (VTT, SRT) or rough notes, and reports each person's share of the words."""

import argparse
import html
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_TIME = re.compile(r"^\s*(\d{1,2}:)?\d{1,2}:\d{2}([.,]\d{1,3})?\s*-->.*$")
_STAMP = re.compile(r"^\s*[\[(]?(\d{1,2}:)?\d{1,2}:\d{2}([.,]\d{1,3})?[\])]?\s*[-–:]?\s*")
_VOICE = re.compile(r"<v(?:\.[^ >]*)? ([^>]+)>")
_TAG = re.compile(r"</?[a-zA-Z][^>]*>|<\d[^>]*>")
_SPEAKER = re.compile(r"^(?P<name>[^\W\d_][\w .,'’()-]{0,48}?)\s*:\s+(?P<said>\S.*)$")
_SKIPPED = re.compile(r"^(WEBVTT|NOTE|STYLE|REGION|Kind:|Language:)", re.IGNORECASE)

Turn = tuple[str, str]


def spoken(lines: Iterable[str]) -> Iterator[str]:
    """Yield the spoken lines, without headers, numbers, timestamps and markup."""
    before = ""
    for line in lines:
        text = line.strip()
        if not text or text.isdigit() or _TIME.match(text) or _SKIPPED.match(text):
            continue
        text = _TAG.sub("", _VOICE.sub(r"\1: ", _STAMP.sub("", text)))
        text = html.unescape(" ".join(text.split()))
        if text and text != before:  # rolling captions repeat everything
            yield text
        before = text or before


def turns(lines: Iterable[str]) -> list[Turn]:
    """Join lines into turns: the speaker and the text. The name is "" for an unnamed speaker."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        match = _SPEAKER.match(line)
        name, said = (match["name"], match["said"]) if match else ("", line)
        if found and (not name or name == found[-1][0]):
            found[-1][1].append(said)
        else:
            found.append((name, [said]))
    return [(name, " ".join(parts)) for name, parts in found]


def shares(said: Sequence[Turn]) -> list[str]:
    """Return a line for each speaker with the share of all words and the number of turns."""
    words: Counter[str] = Counter()
    for name, text in said:
        words[name or "(nobody named)"] += len(text.split())
    taken = Counter(name or "(nobody named)" for name, _ in said)
    total = words.total() or 1
    return [
        f"{name}: {count / total:.0%} of the words, turns: {taken[name]}"
        for name, count in words.most_common()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the file; write the transcript to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    asked = parser.parse_args(arguments)
    if not asked.file.is_file():
        raise SystemExit(f"There is no file {asked.file}")
    text = asked.file.read_text("utf-8-sig", errors="replace")
    said = turns(spoken(text.splitlines()))
    if not said:
        raise SystemExit("There is no text in this file.")
    lines = ["Speakers", *shares(said), ""]
    lines += [f"{name}: {text}" if name else text for name, text in said]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
