"""The console's style sheet: parsed once for a theme, and applied again only where a rule may choose otherwise.

Textual 8.2.8 parses the same sources three times at its start, a sixth of the start-up time. With every move of the
focus it applies all rules to the two widgets and to each of their component classes, three times: on the map and the
list beside it 49 classes, 30 ms of a key.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from textual.cache import LRUCache
from textual.css.model import RuleSet, SelectorType
from textual.css.styles import RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode

_KEPT = 512  # sources; Textual keeps 64, fewer than there are after all screens were shown
#: What a rule looks at on a node and its ancestors: their classes and pseudo-classes.
_State = tuple[tuple[frozenset[str], frozenset[str]], ...]


class _Depends(NamedTuple):
    """The classes and pseudo-classes that rules for some component classes name."""

    classes: frozenset[str]
    pseudo_classes: frozenset[str]


class ReadOnce(Stylesheet):
    """Textual's style sheet with less work; the styles are the same."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(_KEPT)
        self._depends: dict[frozenset[str], _Depends] = {}
        self._states: WeakKeyDictionary[DOMNode, _State] = WeakKeyDictionary()

    def set_variables(self, variables: dict[str, str]) -> None:
        """Forget what was parsed with the old variables."""
        if variables != self._variables:
            super().set_variables(variables)
            self._require_parse = True

    def parse(self) -> None:
        """Parse what is new. The new rules may be for anything."""
        super().parse()
        self._depends.clear()
        self._states.clear()

    def reparse(self) -> None:
        """Parse only what is new."""
        if self._require_parse:
            self.parse()

    @classmethod
    def replace_rules(cls, node: DOMNode, rules: RulesMap, animate: bool = False) -> None:
        """Set the rules of a node. If they are the same as before, only tell the node, because those of its ancestors
        may have changed."""
        if rules == node.styles.base._rules:
            node.notify_style_update()
        else:
            super().replace_rules(node, rules, animate=animate)

    def _process_component_classes(self, node: DOMNode) -> None:
        """Apply the rules for a node's component classes, if one of them may choose otherwise than the last time."""
        components = frozenset(node._get_component_classes())
        if not components:
            return
        state = self._state(node, components)
        if self._states.get(node) != state:
            super()._process_component_classes(node)
            self._states[node] = state
            node.notify_style_update()

    def _state(self, node: DOMNode, components: frozenset[str]) -> _State:
        rules = self.rules_map  # parses what is new
        depends = self._depends.get(components)
        if depends is None:
            named = [rule for name in components for rule in rules.get(f".{name}", ())] + rules.get("*", [])
            depends = self._depends[components] = _depends(named, components)
        return tuple(
            (
                depends.classes & one.classes,
                frozenset(name for name in depends.pseudo_classes if one.has_pseudo_class(name)),
            )
            for one in node.css_path_nodes
        )


def _depends(rules: list[RuleSet], components: frozenset[str]) -> _Depends:
    classes: set[str] = set()
    pseudo_classes: set[str] = set()
    for rule in rules:
        for selector_set in rule.selector_set:
            *_, last = selector_set.selectors
            if last.type is SelectorType.UNIVERSAL or (last.type is SelectorType.CLASS and last.name in components):
                for selector in selector_set.selectors:
                    pseudo_classes |= selector.pseudo_classes
                    if selector.type is SelectorType.CLASS:
                        classes.add(selector.name)
    return _Depends(frozenset(classes), frozenset(pseudo_classes))


def drawn_with(node: DOMNode) -> list[object]:
    """The styles with which a widget draws itself and its components: as long as they are equal, so is the picture."""
    return [node.rich_style, *node._component_styles.values()]
