"""Where the large things of a node lie: as its config says, or where the layout has them."""

from pathlib import Path

from core.config.schema import Config
from core.paths import Layout


def engines_directory(config: Config, layout: Layout) -> Path:
    """Builds of engines."""
    return Path(config.paths.engines) if config.paths.engines else layout.engines


def weights_directory(config: Config, layout: Layout) -> Path:
    """Weights of models."""
    return Path(config.paths.weights) if config.paths.weights else layout.weights
