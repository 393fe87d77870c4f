"""Transport below the wire protocol: Unix sockets with checked owners, a small event loop, buffered links, TLS.

Standard library only, Python 3.9, because it is part of the PCT. asyncio is not used: a PCT forks and must stay small,
and a round trip over 1,024 daemons takes 2.5 times as long with it.
"""
