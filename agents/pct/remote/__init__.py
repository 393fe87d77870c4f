"""The PCT's port for other machines: TLS, admission of launches, image transfer."""
