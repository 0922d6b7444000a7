"""The content of a prompt: plain text, or blocks of text, images and video."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

from noonmark.core.documents import named, present
from noonmark.core.frozen import frozen
from noonmark.core.json_values import MAX_JSON_BYTES, json_problem, shown

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

MAX_TEXT = 200_000
"""The longest prompt, query or text block, in characters."""
MAX_BLOCKS = 100


class BlockType(StrEnum):
    """What a block holds."""

    TEXT = "text"
    IMAGE = "image"
    VIDEO = "video"


class MediaSource(StrEnum):
    """Where the bytes of an image or video are: in the block as base64, in a blob store, or at an address."""

    INLINE = "inline"
    BLOB = "blob"
    URI = "uri"


_TYPES = named(BlockType)
_SOURCES = named(MediaSource)
_DATA_FIELD = {MediaSource.INLINE: "data", MediaSource.BLOB: "blob_id", MediaSource.URI: "uri"}


@frozen(kw_only=True)
class TextBlock:
    """A paragraph of text."""

    text: str

    def to_document(self) -> dict[str, Any]:
        """The block as JSON shows it."""
        return {"type": str(BlockType.TEXT), "text": self.text}


@frozen(kw_only=True)
class MediaBlock:
    """An image, or a video with its length; `data` is the bytes, the blob or the address, as its source says."""

    type: BlockType
    media_type: str
    source: MediaSource
    data: str
    duration_ms: int | None = None

    def to_document(self) -> dict[str, Any]:
        """The block as JSON shows it."""
        block = present(
            type=str(self.type), media_type=self.media_type, source=str(self.source), duration_ms=self.duration_ms
        )
        return block | {_DATA_FIELD[self.source]: self.data}


Block = TextBlock | MediaBlock
Content = str | tuple[Block, ...]


def read_content(reader: Reader, name: str) -> Content:
    """Read text or blocks."""
    value = reader.raw(name)
    if value is None or isinstance(value, str):
        return read_prompt(reader, name)
    if not isinstance(value, list | tuple) or not value:
        reader.problem(name, f"must be text or an array of at least one block, not {shown(value)}")
        return ()
    if (problem := json_problem(value)) is not None:
        reader.problem(name, problem)
        return ()
    blocks = []
    for index, item in enumerate(reader.items(name, high=MAX_BLOCKS)):
        block = _read_block(reader.entry(f"{name}[{index}]", item))
        if block is not None:
            blocks.append(block)
    return tuple(blocks)


def read_prompt(reader: Reader, name: str) -> str:
    """Read words for an agent."""
    text: str = reader.text(name, high=MAX_TEXT, multiline=True)
    return text


def content_document(content: Content) -> str | list[dict[str, Any]]:
    """The content as JSON shows it."""
    return content if isinstance(content, str) else [block.to_document() for block in content]


def _read_block(reader: Reader | None) -> Block | None:
    if reader is None or (kind := reader.variant("type", _TYPES)) is None:
        return None
    block: Block
    match kind:
        case BlockType.TEXT:
            block = TextBlock(text=read_prompt(reader, "text"))
        case BlockType.IMAGE:
            block = _read_media(reader, kind)
        case BlockType.VIDEO:
            block = _read_media(reader, kind, duration_ms=reader.integer("duration_ms", None, low=1))
        case _:
            assert_never(kind)
    reader.close()
    return block


def _read_media(reader: Reader, kind: BlockType, *, duration_ms: int | None = None) -> MediaBlock:
    source = reader.choice("source", _SOURCES, MediaSource.INLINE)
    return MediaBlock(
        type=kind,
        media_type=reader.text("media_type"),
        source=source,
        data=reader.text(_DATA_FIELD[source], high=MAX_JSON_BYTES),
        duration_ms=duration_ms,
    )
