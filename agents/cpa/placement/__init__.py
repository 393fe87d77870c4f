"""Which of the free processors a request gets. ``registry`` names the algorithms; every other file is one."""
