"""RCAs and CPAs on other login processors."""
