"""A `parlant` NLP service that makes its answers up. Asyncio-flavoured."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from parlant.core.nlp.embedding import NullEmbedder
from parlant.core.nlp.generation import SchematicGenerationResult, SchematicGenerator
from parlant.core.nlp.generation_info import GenerationInfo, UsageInfo
from parlant.core.nlp.moderation import NoModeration
from parlant.core.nlp.service import NLPService
from parlant.core.nlp.tokenization import ZeroEstimatingTokenizer
from pydantic import BaseModel

__all__ = ["Service"]

T = TypeVar("T", bound=BaseModel)

Asked: TypeAlias = Callable[[str], Awaitable[tuple[str, str]]]
"""Given the name of a schema, when the model is asked for it: the token and word of the turn."""


class Service(NLPService):
    """The models of an engine. `asked` may take its time."""

    supports_streaming = False

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def get_schematic_generator(
        self, t: type[T], hints: Mapping[str, Any] | None = None
    ) -> SchematicGenerator[T]:
        """One for a schema."""
        # The engine reads the schema off what this instance was made by.
        generator = _Generator[t]()  # type: ignore[valid-type]
        generator.asked = self._asked
        return generator

    async def get_streaming_text_generator(self, hints: Mapping[str, Any] | None = None) -> Any:
        """There is none."""
        raise NotImplementedError("it does not stream")

    async def get_embedder(self, hints: Mapping[str, Any] | None = None) -> NullEmbedder:
        """One that tells nothing apart."""
        return NullEmbedder()

    async def get_moderation_service(self) -> NoModeration:
        """One that lets everything pass."""
        return NoModeration()


class _Generator(SchematicGenerator[T]):
    asked: Asked
    id = "parked"
    max_tokens = 100_000
    tokenizer = ZeroEstimatingTokenizer()

    async def generate(
        self, prompt: object, hints: Mapping[str, Any] | None = None
    ) -> SchematicGenerationResult[T]:
        """What the turn's message asks for."""
        name = self.schema.__name__
        token, word = await self.asked(name)
        content = _answer(self.schema, token, word)
        usage = UsageInfo(input_tokens=1, output_tokens=1)
        info = GenerationInfo(schema_name=name, model=self.id, duration=0.0, usage=usage)
        return SchematicGenerationResult(content=content, info=info)


def _answer(schema: type[BaseModel], token: str, word: str) -> Any:
    name = schema.__name__
    if name == "CannedResponseDraftSchema":
        body = None if word == "mute" else f"answer to {token}"
        return schema(last_message_of_user=None, guidelines=[], response_body=body)
    if name == "CannedResponsePreambleSchema":
        return schema(preamble=f"on it: {token}")
    if name == "GenericActionableGuidelineMatchesSchema":
        check = _element(schema, "checks")
        applies = word == "tool"
        return schema(checks=[check(guideline_id="1", condition="", rationale="", applies=applies)])
    if name == "NonConsequentialToolBatchSchema":
        calls = [_element(schema, "calls")()] if word == "tool" else []
        return schema(should_run=bool(calls), calls=calls)
    return _fill(schema)


def _element(schema: type[BaseModel], field: str) -> Any:
    return typing.get_args(schema.model_fields[field].annotation)[0]


def _fill(kind: Any) -> Any:
    """Something of this type."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return typing.get_args(kind)[0]
    if origin in (typing.Union, types.UnionType):
        kinds = typing.get_args(kind)
        return None if type(None) in kinds else _fill(kinds[0])
    if origin is not None:
        return {} if isinstance(origin, type) and issubclass(origin, Mapping) else []
    if not isinstance(kind, type):
        return None
    if issubclass(kind, BaseModel):
        needed = {n: f for n, f in kind.model_fields.items() if f.is_required()}
        return kind(**{name: _fill(field.annotation) for name, field in needed.items()})
    if issubclass(kind, enum.Enum):
        return next(iter(kind))
    return kind() if kind in (str, bool, int, float) else None
