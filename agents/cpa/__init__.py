"""The CPA (compute processor allocator): allocates processors in order of arrival, one transaction for each request.

It keeps no state that matters: any of several CPAs may be killed at any moment.
"""
