"""Requests from other login processors."""
