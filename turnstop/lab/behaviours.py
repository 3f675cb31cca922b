"""What a prompt tells the lab to do: `[turn:TOKEN] WORD`, anywhere in the user's message.

| prompt                           | what the model does                                 |
|----------------------------------|-----------------------------------------------------|
| `[turn:a1] answer`               | answers                                             |
| `[turn:a1] park 5`               | streams 5 pieces, then is silent until released     |
| `[turn:a1] headers`              | sends the headers and a start, then is silent       |
| `[turn:a1] hold`                 | is silent before the response's headers             |
| `[turn:a1] drip 20`              | a piece every 20 ms until released                  |
| `[turn:a1] tool park $ sleep 60` | calls the shell tool; with its result, does `park`  |
| `[turn:a1] refuse`               | HTTP 500                                            |
| `[turn:a1] fail`                 | starts, then reports a failed response              |

The token names the turn in everything that follows from the prompt: requests, connections, and
the processes of the shell tool. A shell that has commands of its own starts no process for them:
omp's has `sleep`, where `/bin/sleep` is a process everywhere.

Programs ask again after an error. HTTP 500 is answered to each attempt; after a failed response,
the turn's further attempts are answered HTTP 400, with which all of them give up.
"""

from __future__ import annotations

import re
import uuid
from typing import Literal, TypeAlias, cast, get_args

import attrs

Word: TypeAlias = Literal["answer", "park", "headers", "hold", "drip", "tool", "refuse", "fail"]

_TOKEN = re.compile(r"\[turn:([\w.-]+)\]\s*")
_LINE = re.compile(r"^[ \t]*" + _TOKEN.pattern, re.MULTILINE)
# Programs put tagged context of their own around what the user wrote.
_CONTEXT = re.compile(r"\n[ \t]*<[A-Za-z].*", re.DOTALL)
_TOOL = re.compile(r"(\w+)(?:\s+(\d+))?\s+\$\s(.*)", re.DOTALL)


@attrs.frozen
class Behaviour:
    """What the model does with one prompt.

    Attributes:
        word: see the table above.
        number: pieces for `park`, milliseconds for `drip`; None: 3, and 20.
        command: what `tool` runs in a shell.
        then: what `tool` does once the result has come.
    """

    word: Word = "answer"
    number: int | None = None
    command: str = ""
    then: Word = "answer"

    def after_tool(self) -> Behaviour:
        """What is left to do once the tool's result is there."""
        return Behaviour(self.then, self.number)

    def __str__(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        if self.word == "tool":
            return f"tool {self.then}{number} $ {self.command}"
        return self.word + number


def read_prompt(text: str) -> tuple[str, Behaviour] | None:
    """The token and the behaviour in a message; None where there is no token.

    A message with a token and no known word is answered.
    """
    # Where prompts were put together, each has a line of its own; a command may hold another one.
    found = next(reversed(list(_LINE.finditer(text))), _TOKEN.search(text))
    if found is None:
        return None
    said = _CONTEXT.sub("", text[found.end() :]).rstrip()
    word, rest, *_ = *said.split(maxsplit=1), "", ""
    if word == "tool" and (tool := _TOOL.match(rest)):
        number = None if tool[2] is None else int(tool[2])
        return found[1], Behaviour("tool", number, tool[3], _word(tool[1]))
    first = rest.split(maxsplit=1)[0] if rest.strip() else ""
    return found[1], Behaviour(_word(word), int(first) if first.isdecimal() else None)


def write_prompt(behaviour: Behaviour, token: str | None = None) -> tuple[str, str]:
    """A token, a new one unless given, and the prompt that carries it."""
    token = token or uuid.uuid4().hex[:12]
    return token, f"[turn:{token}] {behaviour}"


def _word(text: str) -> Word:
    return cast("Word", text) if text in get_args(Word) and text != "tool" else "answer"
