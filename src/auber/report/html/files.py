"""The page and its figures as files: `index.html`, and in `figures/` each drawing as SVG and, where it can be, as PDF."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

from auber.errors import RunError
from auber.report.html.page import Page
from auber.report.html.render import render_html
from auber.system.files import write_text

PAGE = "index.html"
FOLDER = "figures"
PDF_PACKAGES = ("svglib", "reportlab")


def can_make_pdf() -> bool:
    """Whether the packages that turn a drawing into PDF are installed."""
    return all(importlib.util.find_spec(name) is not None for name in PDF_PACKAGES)


def write_page(page: Page, out: Path, *, pdf: bool) -> tuple[Path, ...]:
    """Write the page and its figures into a folder; the page is the first of the paths."""
    texts = {PAGE: render_html(page)} | {
        f"{FOLDER}/{figure.name}.svg": figure.svg for figure in page.figures
    }
    try:
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(out / name, text)
        written = [out / name for name in texts]
        if pdf:
            for figure in page.figures:
                path = out / FOLDER / f"{figure.name}.pdf"
                path.write_bytes(to_pdf(figure.svg))
                written.append(path)
    except OSError as error:
        raise RunError(
            f"{out}: cannot be written ({error}); it must be a folder of its own"
        ) from error
    return tuple(written)


def to_pdf(svg: str) -> bytes:
    """A drawing as a PDF page of its own size, the same bytes each time."""
    from reportlab.graphics import renderPDF
    from reportlab.pdfgen.canvas import Canvas
    from svglib.svglib import svg2rlg

    drawing = svg2rlg(io.BytesIO(svg.encode()))
    assert drawing is not None, "our own drawings are well formed"
    sink = io.BytesIO()
    # invariant: without the time and a random name of the file in it
    canvas = Canvas(sink, pagesize=(drawing.width, drawing.height), invariant=1)
    renderPDF.draw(drawing, canvas, 0, 0)
    canvas.save()
    return sink.getvalue()
