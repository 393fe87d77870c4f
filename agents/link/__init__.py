"""Sockets under the wire: Unix sockets with checked owners, one small event loop, buffered links.

Standard library only, Python 3.9: it travels with the PCT. asyncio is not used because a PCT forks,
must stay small, and a round trip over 1,024 daemons costs two and a half times as much under it.
"""
