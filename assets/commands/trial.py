"""The page that `gristmill try` is given: a file, or a URL of the store's snapshots."""

from pathlib import Path
from typing import Any

from assets.commands.session import require_root
from pipeline.config import Config
from pipeline.errors import UsageError


def page_of(page: str, config: Config) -> tuple[bytes | str, str | None]:
    """HTML and URL of a page: read from a file, or from its crawl record by one ranged read."""
    path = Path(page)
    if path.is_file():
        return path.read_bytes(), None
    if "://" not in page:
        message = f"{page} is a folder" if path.is_dir() else f"{page} is not there"
        raise UsageError(message, hint="give an HTML file, or a URL of a snapshot in the store")
    from pipeline.trace import trace_url
    from pipeline.trial import page_of_record
    from resources.storage import open_store

    root = open_store(require_root(config, there=True), options=config.storage)
    story = trace_url(root, page)[-1]
    return page_of_record(raw_record(root, story, config), story["warc_file"], config)


def raw_record(root: Any, story: dict[str, Any], config: Config) -> bytes:
    """The bytes of a traced document's crawl record, by one ranged read."""
    from pipeline.trace import warc_location
    from resources.locations import read_range

    if not story.get("warc_file"):
        message = f"{story['doc_id']} comes from the source {story['corpus']}, not from a crawl"
        raise UsageError(message, hint="its record is the line named by source_id in its file")
    place = warc_location(root, story["corpus"], story["warc_file"])
    return read_range(place, story["warc_offset"], story["warc_length"], config)
