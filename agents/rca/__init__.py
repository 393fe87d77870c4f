"""The RCA: one on every login processor. It sees who beats and who fell silent, and tells a CPA.

It never opens the database; what it says is repeated until a CPA has done something about it.
"""
