"""Moving between screens: links, history, palette, completion."""
