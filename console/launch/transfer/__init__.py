"""Program images, libraries and files that travel to the nodes."""
