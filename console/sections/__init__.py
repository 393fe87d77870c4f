"""Jobs of sections: described in a file or on a command line, combined, reported (docs/sections.md)."""
