"""Every rank says who it is: ``yod -sz 2 python3 hello.py``."""

import os

rank, size, node = os.environ["YOD_RANK"], os.environ["YOD_SIZE"], os.environ["YOD_NODE"]
print(f"rank {rank} of {size} on {node}")
