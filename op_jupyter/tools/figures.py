"""Pictures: figures and images as blocks that a model can look at."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

from op_jupyter.core.messages import ImageBlock
from op_jupyter.tools.tables import is_a

LARGEST_IMAGE_BYTES: Final = 400_000
WIDEST_PIXELS: Final = 1_000


def image_block(png: bytes | str, media_type: str = "image/png") -> ImageBlock | None:
    """Image bytes, or their base64 text, as a block; None when they are too large to send."""
    data = base64.b64encode(png).decode("ascii") if isinstance(png, bytes) else "".join(png.split())
    return ImageBlock(media_type, data) if len(data) * 3 // 4 <= LARGEST_IMAGE_BYTES else None


def picture_of(value: Any) -> ImageBlock | None:
    """*value* drawn, when it is a figure or an image and not too large."""
    figure = _figure_of(value)
    if figure is not None:
        return image_block(_figure_png(figure))
    if is_a(value, "PIL.Image", "Image"):
        return image_block(_pillow_png(value))
    return None


def describe_picture(value: Any) -> str | None:
    """One line about a figure or an image; None: it is neither."""
    figure = _figure_of(value)
    if figure is not None:
        titles = [t for axes in figure.axes if (t := axes.get_title())]
        labels = [_labels(axes) for axes in figure.axes]
        told = "; ".join(repr(text) for text in (*titles, *labels) if text)
        count = len(figure.axes)
        return f"{type(value).__name__} with {count} axes" + (f": {told}" if told else "")
    if is_a(value, "PIL.Image", "Image"):
        return f"{type(value).__name__} {value.width} × {value.height}, {value.mode}"
    return None


def _figure_of(value: Any) -> Any:
    if is_a(value, "matplotlib.figure", "FigureBase"):
        return value
    if is_a(value, "matplotlib.axes", "Axes"):
        return value.get_figure()
    return None


def _labels(axes: Any) -> str:
    x, y = axes.get_xlabel(), axes.get_ylabel()
    return f"{y or 'y'} over {x or 'x'}" if x or y else ""


def _figure_png(figure: Any) -> bytes:
    while (parent := getattr(figure, "figure", figure)) is not figure:  # subfigures
        figure = parent
    buffer = io.BytesIO()
    dpi = min(figure.dpi, WIDEST_PIXELS / max(figure.get_size_inches()))
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _pillow_png(image: Any) -> bytes:
    copy = image.copy()
    copy.thumbnail((WIDEST_PIXELS, WIDEST_PIXELS))
    buffer = io.BytesIO()
    copy.convert("RGBA" if "A" in copy.getbands() else "RGB").save(buffer, format="PNG")
    return buffer.getvalue()
