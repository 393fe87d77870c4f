"""The mesh's certificates and keys, and their rotation."""
