"""The demonstration: a picture that 16 processes compute on a mesh of its own (``mesh demo``)."""
