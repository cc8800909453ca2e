"""What all pictures share: fonts, colours that are distinct greys on paper, and small files."""

import io
import sys

# Readable for the colour-blind, and as distinct greys on paper.
DARK, MIDDLE, LIGHT, PALE = "#1f5a94", "#6f9fcb", "#a9c7e4", "#e6eef6"
WARM = "#e0a030"
GRID = "#dddddd"


def load_pyplot():
    """matplotlib.pyplot without a display; or one line that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("matplotlib is missing; install it with: python3 -m pip install matplotlib "
                         "(or run make, which does)") from None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 10, "font.family": "DejaVu Sans", "hatch.linewidth": 0.7})
    import matplotlib.pyplot as plot

    return plot


def save(figure, path, dpi=120):
    """Writes a PNG with a palette of 64 colours: a third of the size, and nobody sees it."""
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    try:
        from PIL import Image
    except ImportError:
        return  # a larger file is a picture too
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    with open(path, "wb") as stream:
        stream.write(buffer.getvalue())


def number(text):
    """The figure, or None where nothing was measured."""
    return float(text) if text else None


def bytes_text(value):
    """Three significant digits in the unit that suits, as the table has them."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            digits = 0 if value >= 99.95 or value == 0 else 1 if value >= 9.995 else 2
            return f"{value:.{0 if unit == 'B' else digits}f} {unit}"
        value /= 1000
    return ""


def usage(text):
    print(text, file=sys.stderr)
    raise SystemExit(2)
