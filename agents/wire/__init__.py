"""The protocol's one home: frames and messages, with no socket in sight (docs/protocol.md)."""
