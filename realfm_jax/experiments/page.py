"""One page of pictures of a run."""
from pathlib import Path
from typing import Any


def save_page(result: dict[str, Any], finished: Any, path: Path) -> None:
    """(in work)"""
