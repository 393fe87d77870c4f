"""Frames and messages of the protocol, without sockets (docs/protocol.md)."""
