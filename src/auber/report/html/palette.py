"""The page's colours: what a figure is drawn with, and what stands in its place on a dark ground.

A figure carries its light colours as plain attributes, so that a drawing beside the page needs nothing else. On the page
the style sheet finds these attributes and puts variables in their place, which is all that light and dark differ in.
"""

from __future__ import annotations

from dataclasses import dataclass

from auber.export import charts


@dataclass(frozen=True)
class Ink:
    """One colour by its name in the style sheet."""

    name: str
    light: str
    dark: str


GAIN, LOSS = charts.COLOURS[0], charts.COLOURS[1]
KEPT = "#c9d6e3"

# The figures' colours; each dark one is at least as far from its ground as the light one from white.
FIGURE_INKS = (
    Ink("series-1", charts.COLOURS[0], "#6cb2f0"),
    Ink("series-2", charts.COLOURS[1], "#f08a68"),
    Ink("series-3", charts.COLOURS[2], "#7fc878"),
    Ink("series-4", charts.COLOURS[3], "#bb98e6"),
    Ink("series-5", charts.COLOURS[4], "#d8b640"),
    Ink("kept", KEPT, "#3a4653"),
    Ink("grey", charts.GREY, "#9aa3ad"),
    Ink("faint", charts.FAINT, "#353c44"),
    Ink("ink", charts.INK, "#e6e8ea"),
    Ink("ground", charts.GROUND, "#15191e"),
)

# The page's own.
PAGE_INKS = (
    Ink("panel", "#f6f7f9", "#1c2127"),
    Ink("rule", "#d9dde2", "#353c44"),
    Ink("soft", "#59636e", "#a4adb7"),
    Ink("link", "#0b5fa5", "#7fbdf5"),
    Ink("careful", "#8a4b00", "#f0b060"),
)
