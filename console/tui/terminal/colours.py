"""Colours of programs on the console's own background."""

from __future__ import annotations

from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.palette import Palette
from rich.style import Style

from console.tui.model.sgr import OWN, RGB, Colour, Look

#: The first sixteen colours, which are the terminal's choice: the console's background is not the terminal's.
_ON_DARK = Palette([
    (12, 14, 18), (240, 95, 88), (87, 187, 100), (212, 163, 50), (83, 155, 245), (190, 133, 240), (57, 197, 207),
    (201, 209, 217), (118, 126, 137), (255, 133, 124), (126, 231, 135), (242, 204, 96), (121, 192, 255),
    (215, 172, 255), (118, 227, 234), (255, 255, 255),
])  # fmt: skip
_ON_LIGHT = Palette([
    (36, 41, 47), (190, 30, 40), (20, 110, 45), (138, 97, 0), (5, 80, 174), (120, 60, 190), (20, 110, 120),
    (208, 215, 222), (87, 96, 106), (164, 14, 38), (26, 127, 55), (154, 103, 0), (9, 105, 218), (150, 90, 220),
    (40, 130, 150), (255, 255, 255),
])  # fmt: skip
_LEAST = 4.5  # contrast: WCAG 2 demands as much of text; 1 is invisible
_WHITE, _BLACK = ColorTriplet(255, 255, 255), ColorTriplet(0, 0, 0)


def style_of(look: Look, base: Style, *, dark: bool, colours: bool = True) -> Style:
    """The look of a program's text where ``base`` is that of text without one.

    Text always differs from its background, whatever the program wants. ``colours``: if false, only bold, underline
    and their like are shown.
    """
    style = base + Style(
        bold=look.bold or None, dim=look.dim or None, italic=look.italic or None, underline=look.underline or None,
        reverse=look.reverse or None, strike=look.strike or None,
    )  # fmt: skip
    if not colours or look.front == look.back == OWN:
        return style
    front, back = _triplet(look.front, base.color, dark=dark), _triplet(look.back, base.bgcolor, dark=dark)
    if front is None or back is None:  # a theme in the terminal's own colours: what they are is not known
        return style + Style(color=_by_number(look.front), bgcolor=_by_number(look.back))
    return style + Style(color=Color.from_triplet(_readable(front, back)), bgcolor=Color.from_triplet(back))


def _by_number(colour: Colour) -> Color | None:
    if colour == OWN:
        return None
    return Color.from_ansi(colour) if colour < RGB else Color.from_triplet(_parts(colour))


def _parts(colour: Colour) -> ColorTriplet:
    return ColorTriplet(colour >> 16 & 255, colour >> 8 & 255, colour & 255)


def _triplet(colour: Colour, own: Color | None, *, dark: bool) -> ColorTriplet | None:
    if colour == OWN:
        return own.triplet if own is not None else None
    if colour >= RGB:
        return _parts(colour)
    if colour < 16:
        return (_ON_DARK if dark else _ON_LIGHT)[colour]
    return Color.from_ansi(colour).get_truecolor()


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """The contrast of WCAG 2 between two colours, 1 to 21."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _readable(front: ColorTriplet, back: ColorTriplet) -> ColorTriplet:
    """The colour, or a lighter or darker one that differs enough from its background."""
    light = _luminance(back)
    towards = _WHITE if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else _BLACK
    for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        mixed = ColorTriplet(*(round(a + (b - a) * share) for a, b in zip(front, towards, strict=True)))
        if contrast(mixed, back) >= _LEAST:
            return mixed
    return towards


def _luminance(colour: ColorTriplet) -> float:
    """The relative luminance of WCAG 2, 0 to 1."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
