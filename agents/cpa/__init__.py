"""The CPA: allocates processors, in order of arrival, through one transaction a request.

It holds no state that matters: any of several may be killed at any moment.
"""
