"""The header of a message in harmony, the format of gpt-oss: its channel, and whom it is for."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."


@dataclass(frozen=True)
class Header:
    """`recipient` is empty for what is said to the user, or thought."""

    channel: str
    recipient: str

    @property
    def tool(self) -> str:
        """The name of the tool that the message calls; empty where it calls none."""
        return self.recipient.removeprefix(_FUNCTIONS) if self.recipient.startswith(_FUNCTIONS) else ""


def header_of(text: str) -> Header:
    """From the text before `<|message|>`. Of several channels the last counts."""
    channels, recipients = _CHANNEL.findall(text), _RECIPIENT.findall(text)
    recipient = recipients[-1] if recipients else ""
    return Header(channels[-1] if channels else "final", "" if recipient == "assistant" else recipient)
