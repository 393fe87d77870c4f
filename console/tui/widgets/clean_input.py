"""A line to type into that takes nothing a terminal would act on, pasted or filled in."""

from textual.widgets import Input

from console.launch.sanitise import clean


class CleanInput(Input):
    """Textual's own draws what was pasted as it is."""

    def validate_value(self, value: str) -> str:
        """Control characters as pictures."""
        return clean(value)
