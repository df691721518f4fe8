"""What the package says it needs: the PyTorch it is built against. A provider of metadata.

Its libraries fit one major.minor, so a wheel asks pip for just that. Where no PyTorch is there (an
sdist made in isolation) the range the sources support is said instead.
"""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """`project.dependencies`; the setting `range` is what the sources support."""
    del project
    try:
        major, minor = version("torch").split(".")[:2]
    except PackageNotFoundError:
        return {"dependencies": [f"torch{settings['range']}"]}
    return {"dependencies": [f"torch=={major}.{minor}.*"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """A wheel's dependencies may differ from those its sdist says."""
    del settings
    return {"dependencies": True}
