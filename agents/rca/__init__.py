"""The RCA (resiliency communication agent): one on every login processor. It tracks heartbeats and reports silence
to a CPA.

It never opens the database. It repeats each report until a CPA has handled it.
"""
