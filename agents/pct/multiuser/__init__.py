"""System mode: launches of many users under one root PCT."""
