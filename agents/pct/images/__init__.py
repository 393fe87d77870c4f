"""Program images: received, verified, stored and passed on to other nodes."""
