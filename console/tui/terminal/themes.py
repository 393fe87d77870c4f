"""The console's own themes, beside Textual's (ctrl+p, Theme)."""

from textual.color import Color, ColorParseError
from textual.theme import Theme

DARK = Theme(
    name="redmesh-dark",
    primary="#6cb6ff",
    secondary="#8d99a8",
    accent="#ff8a65",
    warning="#e3b341",
    error="#f8827a",
    success="#6bc46d",
    foreground="#d5dbe3",
    background="#14171c",
    surface="#14171c",
    panel="#2b2f36",
    variables={
        "footer-background": "#202329",
        "footer-key-foreground": "#ff8a65",
        "footer-description-foreground": "#aab4c0",
        "bar": "#202329",
        "quiet": "#99a4b2",
        "edge": "#3a4250",
        "ink": "#14171c",
        "select": "#2f394b",
        "alarm": "#b3261e",
        "alarm-ink": "#ffffff",
        "violet": "#c9a2f2",
    },
)

LIGHT = Theme(
    name="redmesh-light",
    primary="#0b5cad",
    secondary="#5b6672",
    accent="#a63a17",
    warning="#785400",
    error="#b3261e",
    success="#1a6b2d",
    foreground="#1d232b",
    background="#f7f8fa",
    surface="#f7f8fa",
    panel="#dfe4ea",
    dark=False,
    variables={
        "footer-background": "#e6eaef",
        "footer-key-foreground": "#a63a17",
        "footer-description-foreground": "#3c4650",
        "bar": "#e6eaef",
        "quiet": "#525d69",
        "edge": "#b3bcc7",
        "ink": "#14171c",
        "select": "#cfdeef",
        "alarm": "#b3261e",
        "alarm-ink": "#ffffff",
        "violet": "#6b3fa0",
    },
)

CONTRAST = Theme(
    name="redmesh-contrast",
    primary="#7fd0ff",
    secondary="#ffffff",
    accent="#ffd400",
    warning="#ffd400",
    error="#ff8f87",
    success="#56f06a",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#333333",
    variables={
        "footer-background": "#000000",
        "footer-key-foreground": "#ffd400",
        "footer-description-foreground": "#ffffff",
        "bar": "#000000",
        "quiet": "#d0d0d0",
        "edge": "#ffffff",
        "ink": "#000000",
        "select": "#003f66",
        "alarm": "#b3261e",
        "alarm-ink": "#ffffff",
        "violet": "#d9b8ff",
        "text-disabled": "#d0d0d0",
    },
)

#: Shades of grey, with a filter that removes all other colours (programs' and launchers' colours are in the style
#: sheet).
MONO = Theme(
    name="redmesh-mono",
    primary="#ffffff",
    secondary="#b0b0b0",
    accent="#ffffff",
    warning="#d8d8d8",
    error="#ffffff",
    success="#e0e0e0",
    foreground="#e0e0e0",
    background="#101010",
    surface="#101010",
    panel="#303030",
    variables={
        "footer-background": "#202020",
        "footer-key-foreground": "#ffffff",
        "footer-description-foreground": "#c0c0c0",
        "bar": "#202020",
        "quiet": "#ababab",
        "edge": "#505050",
        "ink": "#101010",
        "select": "#3e3e3e",
        "alarm": "#ffffff",
        "alarm-ink": "#101010",
        "violet": "#c8c8c8",
        "text-disabled": "#b0b0b0",
    },
)

THEMES = (DARK, LIGHT, CONTRAST, MONO)
#: What they are for.
TOLD = ("for dark terminals", "for light terminals", "high contrast", "without colours")
#: Their names in the configuration and for ``--theme``.
NAMES = tuple(theme.name.removeprefix("redmesh-") for theme in THEMES)


def borrowed(theme: Theme) -> dict[str, str]:
    """Variables of the console's style sheet, mixed from another theme's colours."""
    made = theme.to_color_system().generate()
    ink = LIGHT.variables["ink"]
    try:
        front, back = Color.parse(made["foreground"]), Color.parse(made["background"])
        if front.ansi is not None or back.ansi is not None:  # the terminal's own colours cannot be mixed
            raise ColorParseError("")
        quiet, edge = back.blend(front, 0.62).hex, back.blend(front, 0.3).hex
        select = back.blend(Color.parse(made["primary"]), 0.35).hex
    except ColorParseError:
        quiet, edge, select = made["foreground"], made["foreground"], made["panel"]
    fixed = {name: (DARK if theme.dark else LIGHT).variables[name] for name in ("violet", "alarm", "alarm-ink")}
    return {"bar": made["panel"], "quiet": quiet, "edge": edge, "ink": ink, "select": select, **fixed}
